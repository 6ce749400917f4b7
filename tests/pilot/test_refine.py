import pytest
import roundmaking

from tadpole.pilot import taskdir
from tadpole.pilot.decision import Verdict
from tadpole.pilot.journal import REFINED, Step
from tadpole.pilot.likeness import alike, lines_of
from tadpole.pilot.refine import Refiner, origins_known, refined_names
from tadpole.pilot.verdict import DropReason
from tadpole.pilot.walk import Calibrated, Walk
from tadpole.rundir import RunDir

EASY, HARD = Verdict.TOO_EASY, Verdict.TOO_HARD


class Yes(roundmaking.Quick):
    """Finds every candidate valid."""

    def drops(self, number):
        return False


@pytest.fixture
async def made(repository, store, tmp_path):
    origins = {}
    tasks, _ = await roundmaking.make(repository, store, tmp_path, count=8, origins=origins)
    return tasks, origins


def walked(task, *verdicts):
    rungs = sorted((hint.rung for hint in task.hints), reverse=verdicts[0] is EASY)
    steps = zip(rungs[-len(verdicts) :], verdicts, strict=True)
    return Walk(task, [(Calibrated(task.at_rung(rung), 1, 2), one) for rung, one in steps])


async def test_tasks_that_are_too_easy_are_composed_in_pairs_of_one_snapshot(made, tmp_path):
    tasks, origins = made
    assert set(origins) == {task.name for task in tasks}
    judging = Yes()
    refiner = Refiner(tmp_path, dict(origins), judging, max_moves=2)
    walks = [walked(task, EASY) for task in tasks]
    found = await refiner.refine(walks, {})
    assert 2 <= len(found) <= len(tasks) / 2
    by_name = {task.name: task for task in tasks}
    for one in found:
        repository, first, second = one.task.name.split("-")
        parts = [by_name[f"{repository}-{number}"] for number in (first, second)]
        assert one.moves == 1
        assert one.task.provenance.operator == "+".join(p.provenance.operator for p in parts)
        gold = {change.path: change.content for change in one.task.gold}
        start = {change.path: change.content for change in one.task.start}
        for part in parts:
            for change in part.gold:
                assert gold[change.path] == change.content != start[change.path]
        assert not any(alike(lines_of(one.task), lines_of(task)) for task in tasks)
    assert refined_names(tmp_path) == {one.task.name for one in found}
    assert origins_known(tmp_path) == len(tasks)
    # A second process makes none of it again, and comes to the same.
    count = judging.judged
    again = await Refiner(tmp_path, dict(origins), judging, max_moves=2).refine(walks, {})
    assert (again, judging.judged) == (found, count)


async def test_what_a_killed_process_left_without_a_row_is_made_again(made, tmp_path):
    tasks, origins = made
    walks = [walked(task, EASY) for task in tasks]
    found = await Refiner(tmp_path, dict(origins), Yes(), max_moves=1).refine(walks, {})
    table = RunDir(tmp_path).table(REFINED)
    table.write_bytes(b"".join(table.read_bytes().splitlines(keepends=True)[:-1]))
    again = await Refiner(tmp_path, dict(origins), Yes(), max_moves=1).refine(walks, {})
    assert again == found


async def test_a_composed_task_that_is_too_hard_falls_apart(made, tmp_path):
    tasks, origins = made
    refiner = Refiner(tmp_path, dict(origins), Yes(), max_moves=3)
    [one, *_] = await refiner.refine([walked(task, EASY) for task in tasks], {})
    walk = walked(one.task, HARD)
    assert await refiner.refine([walk], {one.task.name: 1}) == []  # its parts are there already
    rows = RunDir(tmp_path).rows(REFINED, Step)[-2:]
    assert [row.reason for row in rows] == [DropReason.ALIKE, DropReason.ALIKE]
    alone = Refiner(tmp_path / "alone", {one.task.name: refiner.origins[one.task.name]}, Yes(), 3)
    (tmp_path / "alone").mkdir()
    found = await alone.refine([walk], {one.task.name: 1})
    assert [part.task.name for part in found] == [f"{one.task.name}-part{n}" for n in (1, 2)]
    assert {part.moves for part in found} == {2}


async def test_only_what_no_statement_helps_is_refined_and_only_while_moves_are_left(
    made, tmp_path
):
    tasks, origins = made
    refiner = Refiner(tmp_path, dict(origins), Yes(), max_moves=1)
    for verdict in (HARD, Verdict.KEEP, Verdict.OPEN):  # single bugs have no parts
        assert await refiner.refine([walked(task, verdict) for task in tasks], {}) == []
    used_up = {task.name: 1 for task in tasks}
    walks = [walked(task, EASY) for task in tasks]
    assert not refiner.wanted(walks, used_up) and await refiner.refine(walks, used_up) == []
    assert refiner.wanted(walks, {})
    assert taskdir.load_set(tmp_path) == sorted(tasks, key=lambda task: task.name)
