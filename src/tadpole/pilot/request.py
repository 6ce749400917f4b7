"""Statements of tasks that are more than one bug at one place, from the wish or the symptoms.

====  =========================================================================
rung  what the statement tells
====  =========================================================================
0     what is asked for; where a bug is looked for, what is seen of it
1     and the failing statements with expected against actual
2     and the modules
3     and the functions
4     and the lines
5     and what kinds of mistake they are, where these are known
====  =========================================================================

A rung that would tell nothing new is left out. There is no dictation: such a repair is longer
than a sentence.
"""

from collections.abc import Sequence

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.operators import OPERATORS
from tadpole.pilot.statement import CLOSING, joined, reproduction, seen
from tadpole.pilot.symptom import Symptom
from tadpole.task import Hint, TaskKind

_DONE = "Change the source code so that this holds. Do not change the tests."


def ladder(project: str, candidate: Candidate, symptoms: Sequence[Symptom]) -> tuple[Hint, ...]:
    """All statements. ``symptoms``: of a composed bug one for each part, else one."""
    told = list(dict.fromkeys(symptoms))
    is_bug = candidate.kind is TaskKind.BUG_FIX
    opening = candidate.request or (
        f"{len(candidate.parts)} different things in {project} are broken."
        if candidate.parts
        else f"Something in {project} is broken."
    )
    if is_bug:
        opening = joined([opening, *dict.fromkeys(map(seen, told))])
    known = candidate.request
    parts = [
        opening,
        joined([part for symptom in told for part in _shown(candidate, symptom)]),
        _place("module", [f for f in candidate.files if f"`{f}`" not in known]),
        _place("function", [f for f in _functions(candidate) if f"`{f}`" not in known]),
        "" if candidate.kind is TaskKind.FEATURE else _lines(candidate),
        joined(list(dict.fromkeys(_mistake(part) for part in candidate.parts))),
    ]
    closing = CLOSING if is_bug and not candidate.request else _DONE
    return tuple(
        Hint(rung, joined([*parts[: rung + 1], closing]))
        for rung in range(len(parts))
        if rung == 0 or parts[rung]
    )


def _shown(candidate: Candidate, symptom: Symptom) -> list[str]:
    """How it fails, where nobody knows from the first rung, and what fails."""
    made = candidate.kind is TaskKind.FEATURE and not candidate.origin  # its request says it all
    told = made or candidate.kind is TaskKind.BUG_FIX
    return [*([] if told else [seen(symptom)]), reproduction(symptom)]


def _functions(candidate: Candidate) -> list[str]:
    return [name for name in candidate.functions if not name.startswith("<")]


def _place(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    listed = ", ".join(f"`{name}`" for name in names)
    return f"It is about the {what}{'s' if len(names) > 1 else ''} {listed}."


def _lines(candidate: Candidate) -> str:
    """Each place, as it is numbered at the start: an edit above it may have moved it."""
    places: dict[str, dict[int, None]] = {}
    moved: dict[str, int] = {}
    for site in sorted(candidate.sites, key=lambda site: (site.path, site.offset)):
        by = moved.setdefault(site.path, 0)
        places.setdefault(site.path, {})[site.line + by] = None
        moved[site.path] = by + site.new.count("\n") - site.old.count("\n")
    return f"Look near {'; '.join(_numbers(path, [*found]) for path, found in places.items())}."


def _numbers(path: str, lines: Sequence[int]) -> str:
    *most, last = map(str, lines)
    told = f"lines {', '.join(most)} and {last}" if most else f"line {last}"
    return f"{told} of `{path}`"


def _mistake(part: Candidate) -> str:
    operator = OPERATORS.get(part.operator)
    return operator.explanation if operator else ""
