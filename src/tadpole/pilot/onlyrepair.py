"""Names that only the repair brings back, and what a failure shows without them.

A statement says what execution showed, never what the repair looks like: of a message that names
such a thing, the name of the error is left. Texts of the repair are no names, and neither is what
belongs to Python: what a test expects has to be told.
"""

import builtins
import keyword
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code, Token
from tadpole.pilot.sources import spliced
from tadpole.pilot.symptom import Symptom

_PYTHONS = frozenset([*keyword.kwlist, *dir(builtins)])
_FORMATTED = re.compile(r"[rR]?[fF][rR]?['\"]")  # one token before Python 3.12
_FIELD = re.compile(r"\{([^{}]*)\}")


def names(candidate: Candidate, codes: Mapping[str, Code]) -> frozenset[str]:
    """Names that are nowhere in the edited files and that the repair puts there.

    ``codes``: the files as the repair leaves them.
    """
    return frozenset[str]().union(
        *(
            _brought([site for site in candidate.sites if site.path == path], code)
            for path, code in codes.items()
        )
    )


def without(symptom: Symptom, hidden: AbstractSet[str]) -> Symptom:
    """The symptom without its words where these name what only the repair brings back."""
    if not _words(symptom.message + symptom.detail) & hidden:
        return symptom
    return replace(symptom, message="", detail="")


def _brought(sites: Sequence[Site], code: Code) -> frozenset[str]:
    tokens = (token for site in sites for token in code.between(site.offset, site.end))
    found = frozenset(name for token in tokens for name in _named(token))
    return found - _PYTHONS - _words(spliced(code.text, sites) or "")


def _named(token: Token) -> Iterator[str]:
    if token.kind == tokenize.NAME:
        yield token.text
    elif token.kind == tokenize.STRING and _FORMATTED.match(token.text):
        for field in _FIELD.findall(token.text):
            yield from _words(field)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))
