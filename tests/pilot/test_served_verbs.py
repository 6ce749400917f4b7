"""The verbs of the loop over a model behind a server: it is measured, and not trained."""

import asyncio
import json
from collections import Counter

import pytest

from tadpole.cli.main import run
from tadpole.grading.grader import PytestGrader
from tadpole.pilot import make
from tadpole.progress import Progress
from tests.chat_server import Server, call, completion


class Sometimes:
    """Solves every second attempt at a task, by writing the file as it was."""

    def __init__(self, tasks):
        self._gold = {task.statement: task.gold[0] for task in tasks}
        self._asked = Counter()

    def __call__(self, handler):
        messages = handler.server.seen[-1][2]["messages"]
        answer = completion("Done.")
        if len(messages) == 2:
            told = messages[1]["content"]
            self._asked[told] += 1
            if self._asked[told] % 2:
                gold = self._gold[told]
                wanted = json.dumps({"file_path": gold.path, "content": gold.content.decode()})
                answer = completion("", "tool_calls", tool_calls=[call("Write", wanted)])
        handler.give(200, answer)


@pytest.mark.slow
def test_calibrated_and_evaluated_but_not_trained(
    tmp_path, monkeypatch, capsys, store, engine, repository
):
    tasks = make.make_tasks(
        [repository],
        count=4,
        seed=0,
        store=store,
        engine=engine,
        grader=PytestGrader(engine, store),
        out=tmp_path / "tasks",
        progress=Progress.silent(),
    )
    made = asyncio.run(tasks)
    server = Server()
    server.script = [Sometimes([task.at_rung(hint.rung) for task in made for hint in task.hints])]
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("TADPOLE_CACHE", str(store.cache))
    where = ["--run", str(tmp_path / "run"), "--model", "openai:qwen"]
    few = ["--calibrate.samples", "2", "--eval.samples", "2", "--run.concurrency", "1",
           "--grading.tier", "1", "--tasks.held_out_share", "0.5"]  # fmt: skip

    def tadpole(*words):
        code = run([*words, *where])
        return code, capsys.readouterr()

    code, said = tadpole(
        "tasks", "calibrate", "--tasks.dir", str(tmp_path / "tasks"), *few, "--json"
    )
    assert code == 0, said.err
    places = json.loads(said.out)
    assert {(place["passes"], place["valid"]) for place in places} == {(1, 2)}
    code, said = tadpole("eval", "run", "--policy", "before", "--json")
    assert code == 0, said.err
    assert "openai:qwen" in said.out and '"resolved"' in said.out
    code, said = tadpole("train")
    assert code == 2 and said.out == ""
    assert [line for line in said.err.splitlines() if line.startswith("tadpole: ")] == [
        "tadpole: a model behind a server can be evaluated but not trained: give --model a Hugging "
        "Face directory or name, and leave warmup.enabled at auto"
    ]
    server.shutdown()
    server.server_close()
