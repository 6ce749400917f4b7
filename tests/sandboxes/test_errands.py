"""A box to which nobody keeps a wire: every call is a program that is sent, real ones here."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from placing import BoxPlace, placed

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.protocols import ExecReason, SandboxSpec
from tadpole.sandboxes.errands import PLACE, Errands
from tadpole.settings import BoxKind
from tadpole.task import FileChange


@pytest.fixture
async def both(tree: Path, tmp_path: Path) -> AsyncIterator[tuple[Errands, BoxPlace]]:
    box, place = await placed(SandboxSpec(tree=tree, env={"WHO": "me"}), tmp_path / "empty")
    yield box, place
    await box.close()
    assert place.ended == 1


async def test_tools_commands_and_files_are_those_of_any_box(both):
    box, _ = both
    seen = await box.tool("Read", {"file_path": "pkg/core.py"})
    assert "value = 1" in seen.text and not seen.error
    assert (await box.tool("Read", {"file_path": "none"})).error
    seen = await box.tool("Bash", {"command": "echo $WHO; pwd; cat pkg/deep/leaf.py; false"})
    assert "me\n/repo\nleaf = 1" in seen.text and "Exit code: 1" in seen.text
    edit = {"file_path": "pkg/core.py", "old_string": "1", "new_string": "2"}
    assert not (await box.tool("Edit", edit)).error
    done = await box.exec(["cat"], timeout=20, stdin=b"given")
    assert (done.code, done.stdout) == (0, "given")
    await box.write([FileChange("new.txt", b"new"), FileChange("run.sh", None)])
    assert await box.read("new.txt") == b"new"
    with pytest.raises(FileNotFoundError):
        await box.read("run.sh")
    changed = {change.path: change.content for change in await box.delta()}
    assert changed == {"new.txt": b"new", "pkg/core.py": b"value = 2\n", "run.sh": None}


async def test_nothing_of_a_command_is_left(both):
    """A command that is late, one that leaves a daemon, and one that alters the runner."""
    box, place = both
    late = await box.exec(["sleep", "600"], timeout=0.5)
    assert late.reason is ExecReason.TIMEOUT
    daemon = "setsid nohup bash -c 'sleep 1; touch /tmp/alive' >/dev/null 2>&1 & disown"
    alter = f"echo 'raise SystemExit(3)' > {PLACE}/runner; {daemon}"
    await box.exec(["/bin/bash", "-c", alter], timeout=20)
    assert (await box.exec(["true"], timeout=20)).code == 0
    assert not await place.run("sleep 1.5; test ! -e /tmp/alive", 20)


async def test_an_answer_that_is_none_ends_the_box(both, tmp_path: Path):
    box, place = both
    script = tmp_path / "python3"
    script.write_text("#!/bin/sh\necho nonsense > $5\n")
    await place.put(script, "/tmp/python3")
    assert not await place.run("chmod +x /tmp/python3", 20)
    box._python = "/tmp/python3"
    with pytest.raises(SandboxDied):
        await box.exec(["true"], timeout=20)
    assert place.ended == 1
    with pytest.raises(SandboxDied, match="is gone"):
        await box.exec(["true"], timeout=20)


async def test_a_cancelled_call_ends_the_box(both):
    box, place = both
    call = asyncio.create_task(box.exec(["sleep", "600"], timeout=300))
    await asyncio.sleep(0.5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert place.ended == 1


async def test_a_place_that_does_not_end_changes_no_result(both, tmp_path: Path):
    box, place = both
    ends = place.end

    async def fails() -> None:
        await ends()
        raise RuntimeError("the service does not answer")

    place.end = fails
    assert (await box.exec(["true"], timeout=20)).code == 0
    await box.close()
    with pytest.raises(SandboxDied, match="is gone: closed"):
        await box.exec(["true"], timeout=20)


async def test_a_place_that_fails_is_no_box(tree: Path):
    class Broken:
        ended = 0

        async def run(self, command: str, seconds: float) -> str:
            return "exit code 1: no space"

        async def end(self) -> None:
            self.ended += 1
            raise RuntimeError("nor does it end")

    place, spec = Broken(), SandboxSpec(tree=tree)
    with pytest.raises(SandboxStartError, match="no space"):
        await Errands(BoxKind.HARBOR, place, spec, "python3").opened(spec)
    assert place.ended == 1
