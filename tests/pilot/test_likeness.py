import random
from dataclasses import replace

import pytest
from test_taskdir import new_task

from tadpole.pilot.diversity import Caps, Quota, Trait, dealt, traits_of
from tadpole.pilot.likeness import Likeness, alike, lines_of, lines_of_candidate
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.task import FileChange, Provenance, Source, TaskKind

GOLD = """def area(w, h):
    if w < 0:
        return 0
    w = abs(w)
    h = abs(h)
    return w * h


def edge(w, h):
    return 2 * (w + h)
"""


def task(start, gold=GOLD, repository="m", functions=("area",), version="1"):
    return new_task(
        source=Source("pypi", repository, version, "0" * 64),
        start=(FileChange("m.py", start.encode()),),
        gold=(FileChange("m.py", gold.encode()),),
        provenance=Provenance("p", "o", edited_files=("m.py",), edited_functions=functions),
    )


LESS = task(GOLD.replace("w < 0", "w <= 0"))


@pytest.mark.parametrize(
    "other, wanted",
    [
        (LESS, True),
        (task(GOLD.replace("w < 0", "w > 0")), True),  # another bug in the same place
        (task(GOLD.replace("w < 0", "w > 0"), version="2"), True),
        (task("# new\n" + GOLD.replace("w < 0", "w > 0"), gold="# new\n" + GOLD), True),
        (task(GOLD.replace("w < 0", "w  >  0")), True),  # white space aside
        (task(GOLD.replace("w * h", "w + h")), False),
        (task(GOLD.replace("w < 0", "w > 0"), repository="n"), False),
        (task(GOLD.replace("w < 0", "w > 0"), functions=("edge",)), False),
        (task(GOLD.replace("w < 0", "w > 0").replace("w * h", "w"), functions=("area",)), True),
        (task(GOLD.replace("w < 0", "w > 0").replace("w * h", "w").replace("abs", "")), False),
        (task("def area(w, h):\n    pass\n" + GOLD[GOLD.index("\n\ndef edge") :]), False),
    ],
)
def test_the_same_lines_restored_are_alike(other, wanted):
    assert alike(lines_of(LESS), lines_of(other)) == wanted
    assert alike(lines_of(other), lines_of(LESS)) == wanted
    known = Likeness()
    known.add(lines_of(LESS))
    assert known.has_like(lines_of(other)) == wanted


def test_a_repair_that_only_deletes_is_known_by_what_it_deletes():
    one = task(GOLD.replace("    w = abs(w)\n", "    w = abs(w)\n    w += 1\n"))
    again = task(GOLD.replace("    h = abs(h)\n", "    h = abs(h)\n    w += 1\n"))
    other = task(GOLD.replace("    w = abs(w)\n", "    w = abs(w)\n    w -= 1\n"))
    assert alike(lines_of(one), lines_of(again))
    assert not alike(lines_of(one), lines_of(other))
    assert len(lines_of(one)) == 1


def test_a_candidate_is_like_the_task_it_becomes(snapshot):
    candidates = list(SingleSite().propose(snapshot, random.Random(0)))[:12]
    for candidate in candidates:
        made = new_task(
            source=snapshot.source,
            start=candidate.changes,
            gold=tuple(
                FileChange(path, (snapshot.tree / path).read_bytes()) for path in candidate.files
            ),
            provenance=Provenance(
                "p", edited_files=candidate.files, edited_functions=candidate.functions
            ),
        )
        found = lines_of_candidate(candidate, snapshot.source.location, snapshot.tree)
        assert found == lines_of(made) and found


def test_caps_count_what_was_taken():
    quota = Quota(10, Caps(repository=0.5, operator=0.2, kind=0.3, function=1))
    first = traits_of(LESS)
    assert quota.refuses(first) is None
    quota.take(first)
    assert quota.refuses(first) is Trait.FUNCTION
    for number in range(2):
        other = task(GOLD, functions=(f"f{number}",))
        assert quota.refuses(traits_of(other)) is [None, Trait.OPERATOR][number]
        quota.take(traits_of(other))
    made = replace(LESS.provenance, operator="q", edited_functions=("g",))
    third = replace(LESS, provenance=made)
    assert quota.refuses(traits_of(third)) is Trait.KIND
    feature = replace(third, kind=TaskKind.FEATURE)
    assert quota.refuses(traits_of(feature)) is None
    assert not quota.full
    assert Quota(0, Caps(function=1)).refuses(first) is None  # no quota, no caps
    assert Quota(3, Caps(operator=0.1)).refuses(first) is None  # never below one task


def test_repositories_are_dealt_in_turn():
    tasks = [task(GOLD, repository=name) for name in "aaabbc"]
    assert [one.source.location for one in dealt(tasks)] == list("abcaba")
