"""A policy behind a server, from the setting to the graded attempt."""

import pytest

from tadpole import config, stages
from tadpole.errors import ConfigError, UsageError
from tadpole.evals.policies import PolicyRole
from tadpole.job import Job
from tadpole.models.openai_chat import OpenAIChat
from tadpole.outcome import Outcome, StopReason
from tadpole.progress import Progress
from tadpole.protocols import Sampling, SandboxSpec
from tadpole.reached import Served, reach_policy
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.scripted import ScriptedEngine, ScriptedGrader
from tadpole.task import Hint, Provenance, Recipe, Source, Task, TaskKind
from tadpole.workshop import Workshop
from tests.chat_server import call, completion

TASK = Task(
    name="t", kind=TaskKind.BUG_FIX, source=Source("directory", "x", "1", ""), snapshot="s",
    runtime="r", recipe=Recipe(), start=(), gold=(), hidden=(), fail_to_pass=("t.py::a",),
    pass_to_pass=(), hints=(Hint(0, "Fix f."),), rung=0, provenance=Provenance("scripted"),
)  # fmt: skip
EDIT = '{"file_path": "a.py", "old_string": "x - 1", "new_string": "x + 1"}'


class Trees:
    """A store of one tree."""

    def __init__(self, tree):
        self._tree = tree

    async def tree(self, task):
        return self._tree

    async def spec(self, task):
        return SandboxSpec(tree=self._tree)


@pytest.fixture
def settings(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    return config.load({"policy.model": "openai:qwen"})


@pytest.fixture
def job(settings, tmp_path):
    run = RunDir.create(tmp_path / "run", settings)
    return Job(settings, run, Workshop(tmp_path, None, None, None), Progress())


@pytest.fixture
def attempt(settings, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.py").write_text("def f(x):\n    return x - 1\n")
    served = reach_policy(settings)
    rollout = Rollout(
        engine=ScriptedEngine(), store=Trees(tmp_path / "tree"),
        grader=ScriptedGrader(lambda task, delta: b"x + 1" in delta[0].content),
        policy=OpenAIChat("qwen", pause=0.01), dialogue=served.dialogue, settings=settings.leaf,
        rundir=RunDir.create(tmp_path / "episodes", settings),
    )  # fmt: skip
    return lambda: rollout.attempt(TASK, 0, sampling=Sampling(), stage="eval", seed=1)


async def test_an_attempt_over_a_server(attempt, server):
    server.script = [
        completion("", "tool_calls", tool_calls=[call("Edit", EDIT)], reasoning_content="hm"),
        (503, b"loading", {}),
        completion("Fixed."),
    ]
    row, trace = await attempt()
    assert (row.outcome, row.reward, row.stop) == (Outcome.RESOLVED, 1.0, StopReason.AGENT)
    assert row.policy == "openai:qwen" and row.generated_tokens == 14
    assert trace.turns[0].reasoning == "hm" and trace.turns[0].calls[0].call_id == "c1"
    body = server.seen[-1][2]
    assert [message["role"] for message in body["messages"]] == [
        "system", "user", "assistant", "tool",
    ]  # fmt: skip
    assert body["messages"][3]["content"] == "Edited a.py (1 replacement)."
    assert len(body["tools"]) == 5 and body["max_tokens"] == 8192


async def test_a_server_that_fails_is_no_reward(attempt, server):
    server.script = [completion("", tool_calls=[call()]), (500, b"crashed", {})]
    row, trace = await attempt()
    assert (row.outcome, row.reward) == (Outcome.INFRASTRUCTURE, None)
    assert row.stop is StopReason.LLM_QUERY_ERROR and "status 500: crashed" in trace.error
    assert len(trace.turns) == 1 and trace.turns[0].observations


async def test_a_server_that_is_full_is_a_limit(attempt, server):
    full = {"error": {"message": "maximum context length is 4096 tokens"}}
    server.script = [completion("", tool_calls=[call("Edit", EDIT)]), (400, full, {})]
    row, _ = await attempt()
    assert row.stop is StopReason.MAX_CONTEXT_LEN and row.outcome is Outcome.RESOLVED
    assert row.reward == 0.5


async def test_a_served_policy_is_evaluated_but_not_trained(job):
    with stages.prepared_policy(job, PolicyRole.BEFORE) as prepared:
        assert isinstance(prepared, Served) and prepared.policy.fingerprint == "openai:qwen"
    await stages.start_policy(job)
    assert not job.warms_up
    with pytest.raises(UsageError, match="can be evaluated but not trained"):
        stages._trainable(prepared)
    with pytest.raises(UsageError, match="can be evaluated but not trained"):
        await stages.train(job)  # and not: calibrate first


def test_no_address(settings, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL")
    with pytest.raises(ConfigError, match="no server to ask for qwen: set OPENAI_BASE_URL"):
        reach_policy(settings)
