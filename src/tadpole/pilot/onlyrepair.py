"""Names that only the repair brings back, and what a failure shows without them.

A statement says what execution showed, never what the repair looks like: of a message that names
such a thing, the name of the error is left. Texts of the repair are no names: what a test expects
to read has to be told.
"""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code
from tadpole.pilot.sources import spliced
from tadpole.pilot.symptom import Symptom

# Literals of text and comments of a piece of Python, which need not be whole.
_TEXT = re.compile(
    r"(?:\b[bfruBFRU]{1,2})?(?:"
    r'"""(?:[^\\"]|\\.|"(?!""))*"""'
    r"|'''(?:[^\\']|\\.|'(?!''))*'''"
    r'|"(?:[^\\"\n]|\\.)*"'
    r"|'(?:[^\\'\n]|\\.)*')"
    r"|#[^\n]*",
    re.DOTALL,
)


def names(candidate: Candidate, codes: Mapping[str, Code]) -> frozenset[str]:
    """Names that are nowhere in the edited files and that the repair puts there.

    ``codes``: the files as the repair leaves them.
    """
    return frozenset[str]().union(
        *(
            _brought([site for site in candidate.sites if site.path == path], code.text)
            for path, code in codes.items()
        )
    )


def without(symptom: Symptom, hidden: AbstractSet[str]) -> Symptom:
    """The symptom without its words where these name what only the repair brings back."""
    if not _words(symptom.message + symptom.detail) & hidden:
        return symptom
    return replace(symptom, message="", detail="")


def _brought(sites: Sequence[Site], pristine: str) -> frozenset[str]:
    found = frozenset[str]().union(*(_words(_TEXT.sub(" ", site.old)) for site in sites))
    return found - _words(spliced(pristine, sites) or "")


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))
