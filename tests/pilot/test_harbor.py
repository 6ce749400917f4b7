"""Emitted tasks in Harbor itself, where it is installed (Python 3.12), and what it needs of us."""

import json
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tadpole import process
from tadpole.errors import SandboxStartError
from tadpole.evals.atif import trajectory
from tadpole.grading.grader import PytestGrader
from tadpole.outcome import StopReason
from tadpole.pilot import make, taskdir
from tadpole.progress import Progress
from tadpole.repos.testrun import with_reporter
from tadpole.sandboxes.container import ContainerEngine
from tadpole.trace import Compaction, Observation, Tokens, ToolCall, Trace, Turn
from tests.chat_server import Server, call, completion

harbor = pytest.mark.skipif(
    find_spec("harbor") is None, reason="harbor is not installed: it needs Python 3.12"
)


async def test_links_lead_to_places_that_can_be_written(engine, store, snapshot):
    spec = replace(store.box(snapshot), links={"/logs": "/tmp/.there"})
    box = await engine.start(spec)
    try:
        done = await box.exec(
            ["sh", "-c", "mkdir /tmp/.there && echo 1 > /logs/reward && cat /tmp/.there/reward"],
            timeout=20,
        )
        assert (done.code, done.stdout) == (0, "1\n"), done
        assert await box.read("/tmp/.there/reward") == b"1\n"
        again = await box.exec(["cat", "/logs/reward"], timeout=20)
        assert again.stdout == "1\n"
        refused = await box.exec(["sh", "-c", "echo x > /tests"], timeout=20)
        assert refused.code != 0
    finally:
        await box.close()


@pytest.mark.parametrize("links", [{"/logs": "/etc"}, {"/a/b": "/tmp/x"}, {"/x": "tmp"}])
async def test_other_links_are_refused(engine, store, snapshot, links):
    with pytest.raises(SandboxStartError, match="a link leads from the top to /tmp"):
        await engine.start(replace(store.box(snapshot), links=links))


async def test_a_container_engine_says_that_it_makes_no_links(store, snapshot):
    spec = replace(with_reporter(store.box(snapshot)), links={"/logs": "/tmp/x"})
    with pytest.raises(SandboxStartError, match="links at the top need bubblewrap"):
        await ContainerEngine().start(spec)


def episode() -> Trace:
    """Two turns, a compaction between them; the second ends inside its calls."""
    read = ToolCall(name="Read", arguments={"file_path": "a.py"})
    bad = ToolCall(name="", error="no JSON")
    first = Turn(
        text="I look.",
        reasoning="hm",
        calls=(read, bad),
        observations=(Observation(text="1. x"), Observation(text="InvalidToolCall", error=True)),
        generated_tokens=2,
    )
    second = Turn(text="again", calls=(read, read), observations=(Observation(text="y"),))
    summary = Compaction(turn=1, dropped=0, before=7, after=3, text="so far", summary="so far")
    before = Tokens(
        ids=(1, 2, 3, 4, 5, 6, 7),
        logprobs=(0, 0, -0.1, -0.2, 0, 0, -0.3),
        loss_mask=(0, 0, 1, 1, 0, 0, 1),
        versions=(-1, -1, 0, 0, -1, -1, 0),
    )
    after = Tokens(
        ids=(1, 7, 8, 9), logprobs=(0, 0, 0, -0.4), loss_mask=(0, 0, 0, 1), versions=(-1, -1, -1, 0)
    )
    return Trace(
        task="t", policy="p", seed=3, system="s", statement="do", turns=(first, second),
        stop=StopReason.MAX_TIME, tokens=after, earlier=(before,), compactions=(summary,),
    )  # fmt: skip


def test_a_trajectory_has_each_sampled_token_at_its_step():
    found = trajectory(episode(), session="x", extra={"reward": 0.0})
    json.dumps(found)
    steps = found["steps"]
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4, 5]
    assert [step["source"] for step in steps] == ["system", "user", "agent", "agent", "agent"]
    tokens = [step["metrics"].get("completion_token_ids") for step in steps[2:]]
    assert tokens == [[3, 4], [7], [9]]
    assert [step["metrics"]["prompt_tokens"] for step in steps[2:]] == [2, 6, 3]
    assert steps[3]["message"] == "so far" and steps[3]["extra"]["compaction"]["before"] == 7
    for step in steps[2:]:
        names = [one["tool_call_id"] for one in step.get("tool_calls", [])]
        told = [
            one["source_call_id"] for one in step.get("observation", {"results": []})["results"]
        ]
        assert len(set(names)) == len(names) and set(told) <= set(names)
    assert steps[2]["tool_calls"][1] == {
        "tool_call_id": "call_0_1",
        "function_name": "unknown",
        "arguments": {},
        "extra": {"error": "no JSON"},
    }
    assert found["extra"]["stop"] == "max_time" and found["extra"]["reward"] == 0.0
    assert found["final_metrics"]["total_completion_tokens"] == 4


def test_a_trajectory_without_token_ids_has_counts():
    bare = episode().model_copy(update={"tokens": Tokens(), "earlier": ()})
    metrics = [step["metrics"] for step in trajectory(bare, session="x")["steps"][2:]]
    assert metrics[0] == {"completion_tokens": 2}


@harbor
def test_harbors_own_model_takes_a_trajectory():
    from harbor.models.trajectories import Trajectory

    Trajectory.model_validate(trajectory(episode(), session="x", tools=[{"type": "function"}]))


@harbor
@pytest.mark.slow
async def test_harbor_lints_and_runs_what_we_emit(repository, store, engine, tmp_path, monkeypatch):
    """Oracle 1, no-op 0, and the Leaf agent over a server, in our own boxes."""
    tasks = await make.make_tasks(
        [repository],
        count=2,
        seed=0,
        store=store,
        engine=engine,
        grader=PytestGrader(engine, store),
        out=tmp_path / "tasks",
        progress=Progress.silent(),
    )
    path = tmp_path / "tasks" / tasks[0].name
    program = str(Path(sys.executable).with_name("harbor"))
    server = Server()
    gold = tasks[0].gold[0]
    wanted = json.dumps({"file_path": gold.path, "content": gold.content.decode()})
    server.script = [
        completion("", "tool_calls", tool_calls=[call("Write", wanted)]),
        completion("Done."),
    ]
    env = {**os.environ, "TADPOLE_CACHE": str(store.cache), "OPENAI_BASE_URL": server.url,
           "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}  # fmt: skip

    def run(*words):
        done = process.run([program, *words], env=env, cwd=tmp_path, timeout=300)
        assert done.ok, done
        return done

    run("lint", str(path), "--select", "ALL")
    box = ("-e", "tadpole.pilot.harbor.environment:BoxEnvironment", "-o", "jobs", "-y")
    for agent, reward in (("oracle", 1), ("nop", 0), ("tadpole.pilot.harbor.agent:LeafAgent", 1)):
        name = agent.rpartition(":")[2]
        run("run", "-p", str(path), "-a", agent, "-m", "openai/m", "--job-name", name, *box)
        (result,) = (tmp_path / "jobs" / name).glob("*/result.json")
        found = json.loads(result.read_bytes())["verifier_result"]["rewards"]
        assert found["reward"] == reward, (agent, found)
    assert taskdir.load(path) == tasks[0]
    server.shutdown()
