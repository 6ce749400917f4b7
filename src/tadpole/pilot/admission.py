"""Which statements of a ladder may be given: those that tell enough, and not the answer.

A rung is enough where each failing test asks for something that a solver can know: the broken
function is documented (:func:`tadpole.pilot.sufficiency.documented`), or the rung tells the test's
failure and that failure says what is wanted (:attr:`tadpole.pilot.symptom.Symptom.tells`), or an
unexpected error of the same kind; and where it leaves out no name and no value that only the repair
would bring back. What a person changed was not documented before, and what was written over the
commit asks for something and seldom says all of it: it counts where there is as much of it as of
any statement, and documentation besides. Where all rungs leave out some name or value, these are
told besides, if they are few (:data:`MOST_NAMED`). A rung that quotes a line of the repair is left
out as well. The dictated rung tells all of it on purpose.
"""

import contextlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from tadpole.pilot import leak, onlyrepair, sufficiency, symptom
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.code import Code
from tadpole.pilot.hide import by_file, source_of
from tadpole.pilot.proof import SHORTEST
from tadpole.pilot.proposers.history import OPENING
from tadpole.pilot.statement import TOP
from tadpole.pilot.symptom import Symptom
from tadpole.repos.testrun import Failure
from tadpole.task import FileChange, Hint, Task, TaskKind

MOST_TOLD = 8  # failing test functions that a statement tells one by one
MOST_NAMED = 6  # names and values that it tells because the tests check them
LONGEST_NAMED = 200  # characters of each

Groups = Mapping[str, Sequence[Symptom]]


def groups(failures: Mapping[str, Failure], tree: Path, hidden: AbstractSet[str]) -> Groups:
    """What each failing test function shows, one symptom for each set of parameters.

    ``hidden``: names that must not be told.
    """
    found: dict[str, list[Symptom]] = {}
    for node_id, failure in failures.items():
        shown = onlyrepair.without(symptom.read(node_id, failure, tree), hidden)
        found.setdefault(node_id.partition("[")[0], []).append(shown)
    return found


def others(
    candidate: Candidate,
    codes: Mapping[str, Code],
    tree: Path,
    told: Sequence[Symptom],
    failing: Groups,
) -> list[Symptom]:
    """What has to be told besides: of code that nobody has documented, and of code that is to be
    written, for its documentation seldom says all that its tests ask for."""
    is_new = candidate.kind is TaskKind.FEATURE and not candidate.origin
    if known(candidate, codes, tree) and not is_new:
        return []
    telling = {symptom for symptom in told if symptom.tells}
    missing = [
        next((one for one in shown if one.tells), shown[0])
        for shown in failing.values()
        if telling.isdisjoint(shown)
    ]
    return list(dict.fromkeys(missing))[:MOST_TOLD]


def unasked(candidate: Candidate) -> bool:
    """Whether nobody says what is wanted: there are no words, and no bug that shows itself."""
    return candidate.kind is not TaskKind.BUG_FIX and not candidate.request


def known(candidate: Candidate, codes: Mapping[str, Code], tree: Path) -> bool:
    """Whether what is asked for can be read: in the request itself, or in the documentation."""
    if candidate.kind is not TaskKind.BUG_FIX and not candidate.origin:
        return True  # the request was made from the change
    if candidate.origin and len(candidate.request.removeprefix(OPENING)) < SHORTEST:
        return False  # what a person changed is not what was documented before
    # A person's change may have brought the documentation along: then a solver does not see it.
    read = _start(candidate) if candidate.origin else list(codes.values())
    return all(
        any(sufficiency.documented(tree, code, [name]) for code in read)
        for name in candidate.functions
    )


def _start(candidate: Candidate) -> list[Code]:
    """The edited files as a solver finds them, those that are Python."""
    found = []
    for change in candidate.changes:
        with contextlib.suppress(ValueError):
            found.append(Code.decode(change.path, change.content or b""))
    return found


def admitted(
    task: Task, tree: Path, *, documented: bool, told: Sequence[Symptom], failing: Groups
) -> tuple[Hint, ...]:
    """The rungs of a task that may be given, in order; none where not even the last tells enough.

    ``told`` are the symptoms that its rungs from 1 on tell; rung 0 tells of a bug their errors.
    """
    start = {change.path: change.content for change in task.start}
    solved = {change.path: change.content for change in task.gold}
    tests, chosen = _deciding(task), sufficiency.Chosen(tree, start, solved)
    errors = {shown.exception for shown in told if not shown.is_assertion}

    def enough(rung: int) -> bool:
        seen = set(told) if rung else set()
        raised = errors if rung or task.kind is TaskKind.BUG_FIX else set()
        return documented or all(
            any((one in seen and one.tells) or one.exception in raised for one in shown)
            for shown in failing.values()
        )

    def is_open(hint: Hint) -> bool:
        return enough(hint.rung) and not leak.in_statement(hint.text, start, solved)

    missing = {hint: chosen.untold(hint.text, tests) for hint in task.hints}
    given = [
        hint for hint in task.hints if hint.rung == TOP or (is_open(hint) and not missing[hint])
    ]
    if not given:
        short = (hint for hint in task.hints if _is_short(missing[hint]))
        named = (replace(hint, text=_naming(hint.text, missing[hint])) for hint in short)
        given = [one for one in named if is_open(one) and not chosen.untold(one.text, tests)]
    return tuple(given)


def _is_short(missing: Sequence[sufficiency.Asked]) -> bool:
    return len(missing) <= MOST_NAMED and all(len(one.value) <= LONGEST_NAMED for one in missing)


def _naming(text: str, missing: Sequence[sufficiency.Asked]) -> str:
    """A statement that tells besides what tests check: names as they are, texts in quotes."""
    told = (f"`{one.value!r}`" if one.is_text else f"`{one.value}`" for one in missing)
    return f"{text}\n\nThe tests ask for {', '.join(told)}."


def _deciding(task: Task) -> list[FileChange]:
    """The failing test functions alone, as files of their own."""
    contents = {change.path: change.content or b"" for change in task.hidden}
    found = []
    for path, chains in sorted(by_file(task.fail_to_pass).items()):
        for chain in sorted(chains):
            source = source_of(path, contents.get(path, b""), chain)
            lines = source.splitlines(keepends=True)
            indent = len(source) - len(source.lstrip()) if lines else 0
            text = "".join(line[indent:] if line.strip() else line for line in lines)
            found.append(FileChange(path, text.encode("utf-8", "replace")))
    return found
