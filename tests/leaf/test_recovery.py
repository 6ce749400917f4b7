"""A box that dies is made again, with real tools and real commands replayed in the new one."""

import asyncio
import json

import pytest
from episodes import FILES, FIX, READ, play, say

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.leaf.recovery import RecoveringSandbox
from tadpole.outcome import Outcome, StopReason
from tadpole.protocols import LeftOut, LeftOutReason, Sampling, SandboxSpec
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.scripted import ScriptedEngine, ScriptedGrader, ScriptedPolicy, ScriptedSandbox
from tadpole.settings import LeafConfig, ProfileName, RunConfig
from tadpole.task import FileChange, Hint, Provenance, Recipe, Source, Task, TaskKind
from tadpole.trace import Trace

EDIT = {"file_path": "a.py", "old_string": "x - 1", "new_string": "x + 1"}


class Boxes:
    """Starts boxes that die at the given tool calls, one number (or None) for each box."""

    def __init__(self, *dies_at, files=None):
        self.dies_at, self.files, self.made = list(dies_at), files or FILES, []

    async def __call__(self):
        if not self.dies_at:
            raise SandboxStartError("no room for another box")
        self.made.append(ScriptedSandbox(self.files, dies_at=self.dies_at.pop(0)))
        return self.made[-1]


@pytest.fixture
def make_box():
    made = []

    async def make(*dies_at, files=None):
        boxes = Boxes(*dies_at, files=files)
        made.append(boxes)
        return boxes, await RecoveringSandbox.begin(boxes)

    yield make
    for boxes in made:
        for box in boxes.made:
            asyncio.run(box.close())


async def test_what_changed_something_is_replayed(make_box):
    boxes, box = await make_box(6, None)
    await box.tool("Read", {"file_path": "a.py"})
    await box.tool("Edit", EDIT)
    assert (await box.tool("Edit", EDIT)).error  # refused: nothing to replay
    await box.tool("Write", {"file_path": "b.py", "content": "b\n"})
    await box.tool("Glob", {"pattern": "*"})
    await box.tool("Bash", {"command": "date +%N >> log; cp b.py c.py"})
    seen = await box.tool("Bash", {"command": "cat c.py; wc -l < log"})  # dies here
    assert "STDOUT:\nb\n1\n" in seen.text and box.recoveries == 1
    first, second = boxes.made
    assert not first.root.exists()  # the dead one is closed
    assert [name for name, _ in second.calls] == ["Edit", "Write", "Bash", "Bash"]
    changed = {change.path: change.content for change in await box.delta()}
    assert changed["a.py"] == b"def f(x):\n    return x + 1\n" and changed["c.py"] == b"b\n"


async def test_of_a_command_only_its_ending_must_come_again(make_box):
    _, box = await make_box(1, None)
    await box.tool("Bash", {"command": "date +%N; echo $$"})
    assert not (await box.tool("Read", {"file_path": "a.py"})).error and box.recoveries == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Bash", {"command": "mkdir $BOX/once"}),
        ("Write", {"file_path": "{box}/once/f", "content": "x"}),
    ],
)
async def test_a_replay_with_another_outcome_ends_it(make_box, tmp_path, name, arguments):
    """What lives outside the box makes the second time differ from the first."""
    _, box = await make_box(1, None)
    filled = {
        key: value.replace("$BOX", str(tmp_path)).replace("{box}", str(tmp_path))
        for key, value in arguments.items()
    }
    await box.tool(name, filled)
    if name == "Write":
        (tmp_path / "once/f").unlink()
        (tmp_path / "once/f").mkdir()
    with pytest.raises(SandboxDied, match=f"{name} had another outcome when it was replayed"):
        await box.tool("Read", {"file_path": "a.py"})
    assert box.recoveries == 1


async def test_at_most_two_recoveries(make_box):
    boxes, box = await make_box(0, 0, 0, None)
    with pytest.raises(SandboxDied):
        await box.tool("Read", {"file_path": "a.py"})
    assert box.recoveries == 2 and len(boxes.made) == 3
    _, box = await make_box(0, 0, None)
    assert not (await box.tool("Read", {"file_path": "a.py"})).error and box.recoveries == 2


async def test_a_box_that_dies_in_the_replay_counts_too(make_box):
    boxes, box = await make_box(1, 0, None)
    await box.tool("Write", {"file_path": "b", "content": "b"})
    assert (await box.tool("Read", {"file_path": "b"})).text.startswith("b\n1. b")
    assert box.recoveries == 2 and len(boxes.made) == 3


async def test_no_new_box(make_box):
    _, box = await make_box(0)
    with pytest.raises(SandboxDied, match="no new sandbox could be made: no room"):
        await box.tool("Read", {"file_path": "a.py"})


async def test_the_other_ways_to_touch_a_box_are_replayed_too(make_box):
    boxes, box = await make_box(0, None)
    await box.write([FileChange("new", b"1\n")])
    assert (await box.exec(["sh", "-c", "cp new newer"], timeout=20)).code == 0
    assert (await box.tool("Read", {"file_path": "newer"})).text.startswith("newer\n1. 1")
    assert await box.read("new") == b"1\n" and len(boxes.made) == 2


# --- in an episode, and in an attempt --------------------------------------------------------


@pytest.fixture
def talk(make_tokenizer):
    profile = make_profile(ProfileName.COMPACT, CallFormat.HERMES)
    return Dialogue(make_tokenizer("chatml"), CallFormat.HERMES, profile)


async def test_the_policy_does_not_notice(make_box, talk):
    turns = [READ, FIX, say("Read", file_path="a.py", limit=2), "Done."]
    _, box = await make_box(2, None)
    policy = ScriptedPolicy(talk, turns)
    trace = await play(policy, talk, sandbox=box)
    calm = await play(ScriptedPolicy(talk, turns), talk)
    assert trace.stop is StopReason.AGENT and trace.tokens == calm.tokens
    assert "x + 1" in trace.turns[2].observations[0].text


class Trees:
    """A store of one tree."""

    def __init__(self, tree):
        self._tree = tree

    async def tree(self, task):
        return self._tree

    async def spec(self, task):
        return SandboxSpec(tree=self._tree)


class Fleeting(ScriptedSandbox):
    """Is gone when its change is asked for."""

    async def delta(self):
        raise SandboxDied("the box went away")


class FleetingEngine(ScriptedEngine):
    async def start(self, spec):
        self.started.append(Fleeting(FILES))
        return self.started[-1]


TASK = Task(
    name="t", kind=TaskKind.BUG_FIX, source=Source("directory", "x", "1", ""), snapshot="s",
    runtime="r", recipe=Recipe(), start=(), gold=(), hidden=(), fail_to_pass=("t.py::a",),
    pass_to_pass=(), hints=(Hint(0, "Fix f."),), rung=0, provenance=Provenance("scripted"),
)  # fmt: skip


@pytest.fixture
def make_rollout(talk, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.py").write_text(FILES["a.py"])
    run = RunDir.create(tmp_path / "run", RunConfig())

    def make(engine, policy):
        return Rollout(
            engine=engine, store=Trees(tmp_path / "tree"),
            grader=ScriptedGrader(lambda task, delta: b"x + 1" in delta[0].content),
            policy=policy, dialogue=talk, settings=LeafConfig(), rundir=run,
        )  # fmt: skip

    return make


class Linking(ScriptedSandbox):
    """Its change holds what no patch can."""

    @property
    def left_out(self):
        return (LeftOut(LeftOutReason.LINK, 2, ("new", "n\u00e9w\n")),)


class LinkingEngine(ScriptedEngine):
    async def start(self, spec):
        self.started.append(Linking(FILES))
        return self.started[-1]


def attempt(rollout):
    return rollout.attempt(TASK, 0, sampling=Sampling(), stage="eval", seed=1)


async def test_an_attempt_survives_its_box(make_rollout, talk):
    rollout = make_rollout(ScriptedEngine([1]), ScriptedPolicy(talk, [READ, FIX, "Done."]))
    row, trace = await attempt(rollout)
    assert (row.outcome, row.reward) == (Outcome.RESOLVED, 1.0) and trace.recoveries == 1
    assert rollout.rundir.load_trace(row.trace) == trace
    assert [box.root.exists() for box in rollout.engine.started] == [False, False]


@pytest.mark.parametrize("engine", [ScriptedEngine([1, 0, 0]), FleetingEngine()])
async def test_an_attempt_that_lost_its_box_keeps_its_steps(make_rollout, talk, engine):
    row, trace = await attempt(make_rollout(engine, ScriptedPolicy(talk, [READ, FIX, "Done."])))
    assert (row.outcome, row.reward, row.stop) == (
        Outcome.INFRASTRUCTURE, None, StopReason.TOOL_ERROR,
    )  # fmt: skip
    assert (
        row.turns == len(trace.turns) >= 2
        and row.grade is None
        and trace.recoveries == 2
        and trace.error
    )
    assert trace.turns[0].observations[0].text.startswith("a.py")


class Changing(ScriptedSandbox):
    """Its change is one that it is told."""

    paths: tuple[str, ...] = ()

    async def delta(self):
        return (*await super().delta(), *(FileChange(path, b"") for path in self.paths))


class ChangingEngine(ScriptedEngine):
    def __init__(self, *paths):
        super().__init__()
        self.kind = type("Told", (Changing,), {"paths": paths})

    async def start(self, spec):
        self.started.append(self.kind(FILES))
        return self.started[-1]


async def test_a_file_named_as_a_pathspec_is_a_file(make_rollout, talk):
    engine = ChangingEngine(":!x", ":(bad)", "x.log")
    rollout = make_rollout(engine, ScriptedPolicy(talk, [READ, FIX, "Done."]))
    (rollout.store._tree / ".gitignore").write_text("*.log\n")
    row, _ = await attempt(rollout)
    assert row.outcome is Outcome.RESOLVED
    patch = (rollout.rundir.path / row.patch).read_bytes()
    assert b"b/:!x" in patch and b"b/:(bad)" in patch and b"x.log" not in patch


async def test_what_cannot_be_recorded_voids_its_attempt_and_ends_no_run(make_rollout, talk):
    rollout = make_rollout(ChangingEngine("a/../b"), ScriptedPolicy(talk, [READ, FIX, "Done."]))
    row, trace = await attempt(rollout)
    assert (row.outcome, row.reward, row.patch) == (Outcome.INFRASTRUCTURE, None, "")
    assert "'a/../b'" in trace.error and row.turns == len(trace.turns) >= 2
    assert rollout.grader.graded == []


async def test_what_is_in_no_patch_is_told_with_the_grade(make_rollout, talk):
    rollout = make_rollout(LinkingEngine(), ScriptedPolicy(talk, [READ, FIX, "Done."]))
    row, _ = await attempt(rollout)
    assert row.outcome is Outcome.RESOLVED and row.grade.dropped == ("new", "n\u00e9w\n")
    assert row.grade.reason.endswith(r"(not in the patch: symbolic link: 'new', 'n\xe9w\n')")


async def test_a_cancelled_attempt_leaves_its_trace(make_rollout, talk):
    class Slow(ScriptedPolicy):
        async def sample(self, *args, **kwargs):
            if len(self.prompts) == 2:
                await asyncio.sleep(600)
            return await super().sample(*args, **kwargs)

    policy = Slow(talk, [READ, FIX])
    rollout = make_rollout(ScriptedEngine(), policy)
    task = asyncio.create_task(attempt(rollout))
    while not (len(policy.prompts) == 2 and len(rollout.engine.started[0].calls) == 2):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (saved,) = (rollout.rundir.path / "traces").rglob("*.json.gz")
    trace = rollout.rundir.load_trace(saved.relative_to(rollout.rundir.path).as_posix())
    assert trace.stop is StopReason.CANCELLED and len(trace.turns) == 2
    assert trace.turns[1].observations[0].text.startswith("Edited")
    assert not rollout.engine.started[0].root.exists()
    assert json.loads(trace.model_dump_json())["format"] == 2 and isinstance(trace, Trace)
