"""A source that cannot be read is named and left out, and the others' tasks are not lost."""

import json
from pathlib import Path

import pytest
import roundmaking

from tadpole.cli.main import run
from tadpole.errors import NetworkError, SourceError
from tadpole.pilot import taskdir
from tadpole.pilot.journal import SETTINGS, Making
from tadpole.pilot.unread import TABLE, Unread, left_out, readable
from tadpole.rundir import RunDir


@pytest.fixture
def bare(tmp_path) -> str:
    """A directory with code and no tests."""
    place = tmp_path / "bare"
    place.mkdir()
    (place / "code.py").write_text("X = 1\n")
    return str(place)


async def test_it_is_told_with_what_to_do_and_the_others_are_left(
    store, repository, bare, tmp_path
):
    out, said, missing = tmp_path / "tasks", [], str(tmp_path / "none")
    sources = [bare, repository, missing, repository]
    for _ in range(2):
        assert await readable(sources, store, out, said.append) == [repository]
    assert said[:2] == said[2:] and len(said) == 4
    assert said[0].startswith(f"left out {bare}: ") and "[tool.tadpole] test_paths" in said[0]
    assert said[1].startswith(f"left out {missing}: ") and "give a directory" in said[1]
    rows = RunDir(out).rows(TABLE, Unread)
    assert [row.source for row in rows] == [bare, missing]  # each once
    assert left_out(out) == rows and left_out(out, [repository, bare]) == rows[:1]
    (Path(bare) / "pyproject.toml").write_text("[project")
    await readable(sources, store, out, said.append)
    assert "its pyproject.toml cannot be read" in left_out(out)[0].reason  # the last one holds
    making = Making(source=bare, snapshot="s", seed=0, proposer="p", max_dictated=0)
    RunDir(out).append(SETTINGS, making)
    assert [row.source for row in left_out(out)] == [missing]  # it could be read after all
    # Whatever was begun with it would come to something else without it.
    with pytest.raises(SourceError, match=f"was begun with {bare}, which cannot be read now"):
        await readable(sources, store, out, said.append)


async def test_a_secret_in_an_address_is_neither_told_nor_kept(store, repository, tmp_path):
    out, said = tmp_path / "tasks", []
    private = "http://me:s3cret@127.0.0.1:9/x.git"
    assert await readable([private, repository], store, out, said.append) == [repository]
    assert said[0].startswith("left out http://127.0.0.1:9/x.git: ")
    assert "s3cret" not in said[0] + RunDir(out).table(TABLE).read_text()
    assert len(left_out(out, [private])) == 1


async def test_none_that_can_be_read_is_an_error_and_leaves_nothing(store, bare, tmp_path):
    class Unreachable:
        async def snapshot(self, source):
            raise NetworkError("cannot reach the package index: check the network")

    with pytest.raises(SourceError, match=f"none of 2 sources can be read; {bare}: "):
        await readable([bare, f"{bare}2"], store, tmp_path / "tasks", print)
    with pytest.raises(NetworkError, match="none of 2 sources can be read; pypi:a: cannot reach"):
        await readable(["pypi:a", "pypi:b"], Unreachable(), tmp_path / "tasks", print)
    assert not (tmp_path / "tasks").exists()


async def test_a_source_that_joins_later_takes_no_name_of_the_others(store, repository, tmp_path):
    """Two repositories of one name, the first of which could not be read at first."""

    async def make(names, count):
        return await roundmaking.make_tasks(
            names, count=count, seed=3, store=roundmaking.Thrice(store, repository), engine=None,
            grader=None, out=tmp_path, progress=roundmaking.Progress.silent(),
            validator=roundmaking.Quick(),
        )  # fmt: skip

    first = await make(["b/lib"], 3)
    assert {task.name.rpartition("-")[0] for task in first} == {"lib"}
    both = await make(["a/lib", "b/lib"], 6)
    assert len(both) == 6 and [task for task in both if task.source.location == "b/lib"] == first
    assert {t.name.rpartition("-")[0] for t in both if t not in first} == {"lib-1"}
    assert sorted(t.name for t in taskdir.load_set(tmp_path)) == sorted(t.name for t in both)
    assert await make(["a/lib", "b/lib"], 6) == both


@pytest.mark.slow
def test_the_verb_says_so_and_goes_on(tmp_path, store, repository, bare, monkeypatch, capsys):
    monkeypatch.setenv("TADPOLE_CACHE", str(store.cache))
    place = str(tmp_path / "run")
    few = ["--tasks.count", "1", "--tasks.mutants", "0", "--grading.tier", "1",
           "--tasks.proposers", "single-site", "--json", "--run", place]  # fmt: skip

    def tadpole(*words):
        code = run(list(words))
        return code, capsys.readouterr()

    code, said = tadpole("tasks", "make", "--tasks.sources", f"{bare},{repository}", *few)
    assert code == 1 and len(json.loads(said.out)) == 1
    [line] = [line for line in said.err.splitlines() if line.startswith("tadpole: ")]
    assert line.startswith(f"tadpole: left out {bare}: ")
    code, said = tadpole("tasks", "yield", place)
    assert code == 0 and f"left out {bare}: " in said.out
    code, said = tadpole("tasks", "yield", place, "--json", "--html", str(tmp_path / "y.html"))
    assert list(json.loads(said.out)["unread"]) == [bare]
    assert f"Left out <code>{bare}</code>" in (tmp_path / "y.html").read_text()
    code, said = tadpole("tasks", "make", "--tasks.sources", repository, *few)  # without it
    assert code == 0 and len(json.loads(said.out)) == 1
    code, said = tadpole("tasks", "make", "--tasks.sources", bare, *few)
    assert code == 2 and "tasks.sources" in said.err
