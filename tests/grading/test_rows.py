"""Rows of known failures of other harnesses: patches (P) and grading (T), each with a real box.

P1-P4 and P6 as patches are in test_patch, T1, T4 and T5 (as A09: no pipe and no output decides)
in test_attacks, T2, T3 and T10 in test_grader, T11 in the tests of the store (one commit, no
remotes, tags or reflog).
"""

from dataclasses import replace

import pytest

from tadpole.evals.validity import validate_tasks
from tadpole.grading.patch import file_of, git_patch, without_ignored, worth_telling
from tadpole.progress import Progress
from tadpole.protocols import LeftOutReason
from tadpole.task import FileChange


@pytest.fixture
def work(tmp_path):
    """A work tree after set-up: a build has left its files in it."""
    for path, content in {
        "a.py": b"x = 1\n",
        "gone.py": b"y = 1\n",
        "kept.log": b"recorded although it looks ignored\n",
        ".gitignore": b"*.log\nbuild/\n",
        "build/lib/a.py": b"x = 1\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    tmp_path.chmod(0o755)
    return tmp_path


async def changed(engine, store, task, work, command):
    """What an agent's command leaves, as it would be recorded."""
    spec = replace(await store.spec(task), tree=work)
    box = await engine.start(spec)
    try:
        done = await box.exec(["/bin/bash", "-c", command], timeout=30)
        assert done.code == 0, done
        delta, left_out = await box.delta(), box.left_out
    finally:
        await box.close()

    def read(path):
        return file_of(work, path)

    told = {one.reason: one.paths for one in worth_telling(left_out, delta, read)}
    return without_ignored(delta, read), told


async def test_p1_p7_what_the_agent_did_is_recorded_and_what_is_ignored_or_was_built_is_not(
    engine, store, task, work
):
    delta, told = await changed(
        engine,
        store,
        task,
        work,
        "echo 'x = 2' > a.py; echo 1 > new.py; echo 1 > x.log; echo more >> kept.log; rm gone.py;"
        "ln -s a.py link.log",
    )
    assert [(change.path, change.content) for change in delta] == [
        ("a.py", b"x = 2\n"),
        ("gone.py", None),
        ("kept.log", b"recorded although it looks ignored\nmore\n"),
        ("new.py", b"1\n"),
    ]
    assert told == {}


async def test_p1_the_rules_are_those_of_the_final_tree(engine, store, task, work):
    delta, _ = await changed(
        engine, store, task, work, "echo '*.tmp' > .gitignore; mkdir d; touch d/a.tmp d/b.log"
    )
    assert [change.path for change in delta] == [".gitignore", "d/b.log"]


async def test_p6_a_nested_repository_becomes_files_and_no_link(engine, store, task, work):
    nested = "mkdir -p sub/.git && echo x > sub/.git/config && echo 1 > sub/a.py"
    delta, told = await changed(engine, store, task, work, f"{nested}; ln -s a.py link.py")
    assert [change.path for change in delta] == ["sub/a.py"]
    assert told == {LeftOutReason.REPOSITORY: ("sub",), LeftOutReason.LINK: ("link.py",)}
    patch = git_patch({}, delta)
    assert b"160000" not in patch and b"sub/.git" not in patch


async def test_t7_ids_are_compared_as_pytest_has_them(grader, task):
    """Nothing is read from output, so that there is nothing to normalise: another id is another."""
    timed = b"import pytest\n@pytest.mark.parametrize('a', ['x ', ' (12 ms)'])\n"
    timed += b"def test_odd(a): assert a\n"
    task = replace(
        task,
        hidden=(*task.hidden, FileChange("tests/test_odd.py", timed)),
        pass_to_pass=(
            "tests/test_odd.py::test_odd[x ]",
            "tests/test_odd.py::test_odd[ (12 ms)]",
            "tests/test_odd.py::test_odd[x]",
        ),
    )
    grade = await grader.grade(task, task.gold)
    assert grade.failing == task.pass_to_pass[2:]


async def test_t8_an_id_that_is_none_is_found_when_the_task_is_validated(grader, task):
    odd = replace(task, pass_to_pass=(*task.pass_to_pass, "[100%]"))
    [bad] = await validate_tasks([odd], grader, Progress(quiet=True))
    assert not bad.ok
    assert "the gold does not pass" in bad.reason
