"""The loop, its window and its recovery in a real sandbox."""

import os
import signal

import pytest
from episodes import FILES, FIX, play, say

from tadpole.leaf.calls import CallFormat
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.leaf.recovery import RecoveringSandbox
from tadpole.outcome import StopReason
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.scripted import ScriptedPolicy
from tadpole.settings import ProfileName


@pytest.fixture
def talk(make_tokenizer):
    profile = make_profile(ProfileName.COMPACT, CallFormat.HERMES)
    return Dialogue(make_tokenizer("chatml"), CallFormat.HERMES, profile)


async def test_a_killed_box_is_made_again_and_the_policy_does_not_notice(talk, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.py").write_text(FILES["a.py"])
    (tmp_path / "tree/long.txt").write_text("word " * 9000 + "\n")
    engine, made = BubblewrapEngine(), []

    async def start():
        made.append(await engine.start(SandboxSpec(tree=tmp_path / "tree")))
        return made[-1]

    def kill(_prompt):
        os.kill(made[0].init_pid(), signal.SIGKILL)
        return say("Bash", command="cat a.py b.txt; date +%N >> log; wc -l < log")

    box = await RecoveringSandbox.begin(start)
    turns = [FIX, say("Bash", command="date +%N | tee -a log > b.txt"), kill,
             say("Read", file_path="long.txt"), "Done."]  # fmt: skip
    try:
        trace = await play(
            ScriptedPolicy(talk, turns), talk, sandbox=box, max_context=3000,
            profile=ProfileName.COMPACT,
        )  # fmt: skip
        changed = {change.path: change.content for change in await box.delta()}
    finally:
        await box.close()
    assert trace.stop is StopReason.AGENT and box.recoveries == 1 and len(made) == 2
    seen = trace.turns[2].observations[0].text
    assert seen.startswith("Exit code: 0") and "x + 1" in seen and "\n2\n" in seen
    assert len(trace.turns[3].observations[0].text) < 3300
    assert changed["a.py"] == b"def f(x):\n    return x + 1\n"
    assert changed["log"].count(b"\n") == 2
