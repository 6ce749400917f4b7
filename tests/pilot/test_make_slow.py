"""Tasks from a real library: needs the package index and a few minutes."""

from collections import Counter

import pytest

from tadpole.grading.grader import PytestGrader
from tadpole.pilot import make, taskdir
from tadpole.progress import Progress
from tadpole.repos.store import Store


@pytest.mark.slow
async def test_twenty_tasks_from_boltons(tmp_path, engine):
    store = Store(tmp_path / "cache", engine)
    grader = PytestGrader(engine, store)
    tasks = await make.make_tasks(
        ["pypi:boltons==26.2.0"],
        count=20,
        seed=0,
        store=store,
        engine=engine,
        grader=grader,
        out=tmp_path / "tasks",
        progress=Progress(),
        max_dictated_chars=60,
    )
    assert taskdir.load_set(tmp_path / "tasks") == tasks
    assert len(tasks) == 20
    files = Counter(task.provenance.edited_files for task in tasks)
    assert len(files) >= 12
    for task in tasks:
        words = task.statement.split("`")
        assert len(words) == 7 and max(map(len, (words[3], words[5]))) <= 60
        start = next(c.content for c in task.start if c.path == words[1]).decode()
        assert start.replace(words[3], words[5]).encode() == task.gold[0].content
        assert (await grader.grade(task, task.gold)).resolved
