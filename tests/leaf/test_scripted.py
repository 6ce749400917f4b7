import asyncio
import random

import pytest

from tadpole.leaf.calls import CallFormat
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.outcome import GradeStatus
from tadpole.protocols import ExecReason, Sampling, SandboxSpec
from tadpole.scripted import (
    ScriptedEngine,
    ScriptedGrader,
    ScriptedPolicy,
    ScriptedProposer,
    ScriptedSandbox,
)
from tadpole.settings import ProfileName
from tadpole.task import FileChange, Hint, Provenance, Recipe, Source, Task, TaskKind
from tadpole.trace import Grade


@pytest.fixture
def talk(make_tokenizer):
    profile = make_profile(ProfileName.COMPACT, CallFormat.HERMES)
    return Dialogue(make_tokenizer("chatml"), CallFormat.HERMES, profile)


async def test_policy_keeps_a_place_in_every_episode(talk):
    policy = ScriptedPolicy(talk, ["one", lambda ids: f"saw {len(ids)}"])

    async def ask(episode, **limits):
        sampled = await policy.sample([1, 2], Sampling(**limits), episode=episode, seed=0)
        return talk.read(sampled.ids)[0], sampled.ended

    assert await ask("a") == ("one", True) and await ask("b") == ("one", True)
    assert await ask("a") == ("saw 2", True) and await ask("a") == ("Done.", True)
    policy.release("a")
    assert (await ask("a", max_tokens=1))[1] is False


async def test_sandbox_is_the_tools_on_a_directory(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.txt").write_bytes(b"one\r\n")
    (tmp_path / "b.txt").write_bytes(b"b")
    engine = ScriptedEngine()
    box = await engine.start(SandboxSpec(tree=tmp_path))
    edit = {"file_path": "sub/a.txt", "old_string": "one", "new_string": "two"}
    assert not (await box.tool("Edit", edit)).error
    assert await box.read("sub/a.txt") == b"two\r\n"
    await box.write([FileChange("b.txt", None), FileChange("c.sh", b"echo hi", executable=True)])
    done = await box.exec(["sh", "c.sh"], timeout=10)
    assert (done.code, done.reason, done.stdout) == (0, ExecReason.EXITED, "hi\n")
    assert await box.delta() == (
        FileChange("b.txt", None),
        FileChange("c.sh", b"echo hi", True),
        FileChange("sub/a.txt", b"two\r\n"),
    )
    assert (tmp_path / "sub/a.txt").read_bytes() == b"one\r\n"
    with pytest.raises(FileNotFoundError):
        await box.read("nope")
    await box.close()
    await box.close()
    assert engine.started == [box] and not box.root.exists()


async def test_grader_and_proposer_say_what_they_were_told():
    task = Task(
        name="t", kind=TaskKind.BUG_FIX, source=Source("directory", "x", "1", ""), snapshot="s",
        runtime="r", recipe=Recipe(), start=(), gold=(), hidden=(), fail_to_pass=("t.py::a",),
        pass_to_pass=(), hints=(Hint(0, "x"),), rung=0, provenance=Provenance("scripted"),
    )  # fmt: skip
    grader = ScriptedGrader(lambda task, delta: bool(delta))
    no, yes = await asyncio.gather(
        grader.grade(task, ()), grader.grade(task, (FileChange("a", b""),))
    )
    assert (no.status, no.resolved, no.failing) == (GradeStatus.GRADED, False, ("t.py::a",))
    assert yes.resolved and yes.failing == () and len(grader.graded) == 2
    invalid = ScriptedGrader(lambda task, delta: Grade(status=GradeStatus.INVALID))
    assert (await invalid.grade(task, ())).status is GradeStatus.INVALID
    proposer = ScriptedProposer(["c1", "c2"])
    assert list(proposer.propose(None, random.Random(0))) == ["c1", "c2"]
    await ScriptedSandbox({}).close()
