"""Statements without a model: the hint ladder, from the symptom alone to the dictated edit.

====  ==========================================================================
rung  what the statement tells
====  ==========================================================================
0     the symptom: an exception, or a check that does not hold
1     and the failing statement with expected against actual
2     and the module
3     and the function, with the first sentence of its docstring
4     and the line
5     and what kind of mistake it is
6     only the edit itself, dictated in one regular sentence
====  ==========================================================================

Rungs 0-5 say what execution showed, never what the repair looks like: the symptoms that they are
made from are without what only the repair would bring back (:mod:`tadpole.pilot.onlyrepair`).
"""

import re
from collections.abc import Sequence

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.code import Code
from tadpole.pilot.dictation import Dictated
from tadpole.pilot.operators import OPERATORS
from tadpole.pilot.symptom import Symptom
from tadpole.task import Hint

TOP = 6

CLOSING = "Correct the source code so that this works again. Do not change the tests."


def ladder(
    project: str,
    candidate: Candidate,
    symptoms: Sequence[Symptom],
    pristine: Code,
    dictated: Dictated,
) -> tuple[Hint, ...]:
    """All statements for a candidate with one site.

    ``symptoms``: the first is told; the others too, where nothing else says what is right.
    """
    site = candidate.sites[0]
    told, *others = symptoms
    parts = [
        f"Something in {project} is broken. {seen(told)}",
        joined([reproduction(told), *(joined([seen(o), reproduction(o)]) for o in others)]),
        f"The mistake is in the module `{site.path}`.",
        _function(candidate, pristine),
        f"It is near line {site.line} of that file.",
        OPERATORS[candidate.operator].explanation,
    ]
    hints = [Hint(rung, joined([*parts[: rung + 1], CLOSING])) for rung in range(TOP)]
    return (*hints, Hint(TOP, dictation_text(dictated)))


def dictation_text(dictated: Dictated) -> str:
    """The top rung: one sentence where both texts fit one, fenced blocks elsewhere."""
    old, new = (text.replace("\r\n", "\n") for text in (dictated.old, dictated.new))
    if "\n" not in old + new and "`" not in old + new:
        return f"In `{dictated.path}` replace `{old}` with `{new}`."
    fence = "```"
    while fence in old + new:
        fence += "`"
    return f"In `{dictated.path}` replace\n{fence}\n{old}\n{fence}\nwith\n{fence}\n{new}\n{fence}"


def seen(symptom: Symptom) -> str:
    """One sentence that says how it fails."""
    message = symptom.message
    if symptom.is_assertion:
        if message.startswith("assert "):
            return f"A check does not hold: {_code(message)}."
        return (
            f"A check does not hold: {message.rstrip('.')}."
            if message
            else ("A check does not hold.")
        )
    told = f"{symptom.exception}: {message}" if message else symptom.exception
    return f"An unexpected error is raised: {_code(told)}."


def reproduction(symptom: Symptom) -> str:
    """The failing statement, and expected against actual."""
    text = ""
    if symptom.snippet:
        text = f"It shows when this runs:\n\n```python\n{symptom.snippet}\n```"
    if symptom.detail:
        text += f"\n\nWhat comes out:\n\n```\n{symptom.detail}\n```"
    return text.strip()


def _function(candidate: Candidate, pristine: Code) -> str:
    name = candidate.functions[0]
    text = f"It is in `{name}`."
    for function in pristine.functions:
        if function.name == name and function.docstring:
            first = re.split(r"(?<=[.!?])\s|\n\s*\n", function.docstring.strip(), maxsplit=1)[0]
            sentence = " ".join(first.split())
            return f"{text} Its purpose: {sentence}" if len(sentence) < 300 else text
    return text


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else text


def joined(parts: Sequence[str]) -> str:
    """Paragraphs, empty ones left out."""
    return "\n\n".join(part for part in parts if part)
