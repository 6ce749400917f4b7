"""The statements of a written task: the author's own words, and what runs and the change show.

====  =========================================================================
rung  what the statement tells
====  =========================================================================
0     what the author wrote; all that the tests ask for is in it
1     and how one of the tests fails at the start
2     and the files that the solution edits
3     and the functions
====  =========================================================================

There is no dictated rung: a solution of many lines cannot be told in one.
"""

from collections.abc import Sequence

from tadpole.pilot.symptom import Symptom
from tadpole.pilot.written import Written
from tadpole.task import Hint

CLOSING = "Do not change the tests that are there."


def ladder(written: Written, functions: Sequence[str], shown: Symptom | None) -> tuple[Hint, ...]:
    """All statements; a rung that has nothing to add is left out."""
    files = ", ".join(f"`{path}`" for path in written.files)
    named = ", ".join(f"`{name}`" for name in functions if name != "<module>")
    parts = [
        written.statement.strip(),
        f"So far one of the checks fails: {_failure(shown)}" if shown and shown.message else "",
        f"To change: {files}.",
        f"There: {named}." if named else "",
    ]
    rungs = [rung for rung, part in enumerate(parts) if part]
    return tuple(
        Hint(rung, "\n\n".join([*filter(None, parts[: rung + 1]), CLOSING])) for rung in rungs
    )


def _failure(shown: Symptom) -> str:
    text = f"{shown.exception}: {shown.message}" if shown.exception else shown.message
    return f"`{text}`" if "`" not in text else text
