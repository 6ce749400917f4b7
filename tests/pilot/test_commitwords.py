"""A commit's words as a statement: what may be told stays, what leads elsewhere goes."""

import pytest

from tadpole.pilot.commitwords import LONGEST, cleaned, kind_of
from tadpole.task import TaskKind


@pytest.mark.parametrize(
    "message, told",
    [
        ("Fix crash in parse() on empty lists (#123)", "Fix crash in parse() on empty lists"),
        ("fix(parser): handle None and add test_parse_none", "handle None"),
        ("Cut words at hyphens, with tests", "Cut words at hyphens"),
        ("[core] Cut words at hyphens", "Cut words at hyphens"),
        ("Keep order\n\nLost. See https://x.org/1. Sorry.", "Keep order\n\nLost. Sorry."),
        ("Keep order\n\nFixes #12\nCo-authored-by: A <a@b.org>", "Keep order"),
        ("Keep order, broken since 1a2b3c4d5e6f", "Keep order, broken"),
        ("Flag whole tokens, suggested in issue #12.", "Flag whole tokens."),
        ("Flag tokens for #12 and 1a2b3c4d5e6f: all", "Flag tokens: all"),
        ("Fix for #12", ""),
        ("Fix for #12 - overflow in parse()", "overflow in parse()"),
        ("GH-7: keep the order", "keep the order"),
        ("Completing work on GH-7", ""),
        ("Fixing last commit", ""),
        ("Sort\n\n- keys (GH-3)\n- values, see a/b#5", "Sort\n\n- keys\n- values"),
        ("Keep order\n\nThe unit tests show it. It is a bug.", "Keep order\n\nIt is a bug."),
        ("Keep order\r\n\r\n(cherry picked from commit 1a2b3c4d)", "Keep order"),
        ("Use facade colours", "Use facade colours"),  # words that look like hashes
        ("Add tests", ""),
        ("wip", ""),
        ("#123", ""),
    ],
)  # fmt: skip
def test_words_are_cleaned(message, told):
    assert cleaned(message) == told


def test_long_words_are_cut():
    assert len(cleaned("Keep order\n\n" + "word " * 999)) <= LONGEST


@pytest.mark.parametrize(
    "message, imports_differ, kind",
    [
        ("Fix the order of added keys", False, TaskKind.BUG_FIX),
        ("Add a way to sort", False, TaskKind.FEATURE),
        ("feat: sorting", False, TaskKind.FEATURE),
        ("Refactor sorting", False, TaskKind.REFACTOR),
        ("Rename sort to order", False, TaskKind.REFACTOR),
        ("Keep the order of keys", False, TaskKind.BUG_FIX),
        ("Replace imp with importlib", True, TaskKind.MIGRATION),
        ("Replace imp with importlib", False, TaskKind.BUG_FIX),  # nothing else is imported
        ("Sort faster", False, TaskKind.BUG_FIX),  # nobody measures how fast
    ],
)
def test_kinds_are_what_the_author_says(message, imports_differ, kind):
    assert kind_of(message, imports_differ) is kind
