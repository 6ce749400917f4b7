"""``tadpole tasks make`` with an author: behind a server, and a real small model here."""

import json

import pytest
from authors import PLACE, left, server

from tadpole.cli.main import run
from tadpole.pilot import taskdir
from tadpole.pilot.drafts import Draft
from tadpole.pilot.journal import TABLE, Step
from tadpole.rundir import RunDir
from tadpole.task import TaskKind


@pytest.fixture
def make(tmp_path, monkeypatch, capsys, store, repository):
    monkeypatch.setenv("TADPOLE_CACHE", str(store.cache))

    def tadpole(*words):
        where = ["--run", str(tmp_path / "run"), "--tasks.sources", repository]
        code = run(["tasks", "make", *where, *words, "--json"])
        return code, capsys.readouterr()

    return tadpole


@pytest.mark.slow
def test_a_served_author_comes_first_and_the_others_fill_up(make, monkeypatch, tmp_path):
    served = server(left(), left(tests=None))
    monkeypatch.setenv("OPENAI_BASE_URL", served.url)
    words = ["--tasks.count", "2", "--author.model", "openai:writer", "--author.drafts", "2",
             "--run.concurrency", "1", "--author.kinds", "feature"]  # fmt: skip
    code, said = make(*words)
    assert code == 0, said.err
    assert [row["kind"] for row in json.loads(said.out)] == ["feature", "bug_fix"]
    tasks = taskdir.load_set(tmp_path / "run" / "tasks")
    assert tasks[0].provenance.author == "openai:writer" and not tasks[1].provenance.author
    assert PLACE in {change.path for change in tasks[0].hidden}
    steps = RunDir(tmp_path / "run" / "tasks").rows(TABLE, Step)
    assert steps[1].reason.name == "NO_TESTS"
    asked = len(served.seen)
    again, said = make(*words)
    assert again == 0 and len(served.seen) == asked
    refused, said = make(*words[:-2], "--author.kinds", "refactor")
    assert refused == 2 and "author.kinds" in said.err
    served.shutdown()


@pytest.mark.slow
def test_a_real_small_model_may_be_the_author(make, tmp_path):
    """135M weights write nothing that holds; what they leave is kept, and told in the journal."""
    code, said = make(
        "--tasks.count", "1", "--author.model", "policy", "--author.drafts", "1",
        "--author.max_turns", "2", "--leaf.max_context", "1536",
    )  # fmt: skip
    assert code == 0, said.err
    (path,) = (tmp_path / "run" / "drafts").rglob("*.json")
    draft = Draft.model_validate_json(path.read_bytes())
    assert draft.kind is TaskKind.BUG_FIX and draft.author
    assert list((tmp_path / "run").rglob("author/*"))
    first = RunDir(tmp_path / "run" / "tasks").rows(TABLE, Step)[0]
    assert first.operator == "bug_fix" and (first.reason or first.task)
