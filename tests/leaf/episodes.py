"""Episodes for the tests: scripted turns on real tools."""

from tadpole.leaf.calls import CallFormat, render
from tadpole.leaf.loop import run_episode
from tadpole.protocols import Sampling
from tadpole.scripted import ScriptedSandbox
from tadpole.settings import LeafConfig
from tadpole.trace import ToolCall

FILES = {"a.py": "def f(x):\n    return x - 1\n"}


def say(tool, **arguments):
    return render(ToolCall(name=tool, arguments=arguments), CallFormat.HERMES)


READ = say("Read", file_path="a.py")
FIX = say("Edit", file_path="a.py", old_string="x - 1", new_string="x + 1")


async def play(policy, dialogue, *, sandbox=None, seed=1, on_cancel=None, **limits):
    """One episode; a sandbox of its own is closed at the end."""
    box = sandbox or ScriptedSandbox(FILES)
    try:
        return await run_episode(
            task_id="t1", statement="Fix f.", sandbox=box, policy=policy, dialogue=dialogue,
            settings=LeafConfig(**limits), sampling=Sampling(), episode="e1", seed=seed,
            on_cancel=on_cancel,
        )  # fmt: skip
    finally:
        if sandbox is None:
            await box.close()
