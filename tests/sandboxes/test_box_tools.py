"""The real Leaf tools in a real box: what they may reach, and what they may not."""

import pytest

from tadpole.protocols import Limits, SandboxSpec
from tadpole.sandboxes.bubblewrap import TOOLBOX


@pytest.fixture
def toolbox():
    return TOOLBOX


async def bash(box, command, **more):
    return await box.tool("Bash", {"command": command, **more})


async def edit(box, path, old, new):
    return await box.tool("Edit", {"file_path": path, "old_string": old, "new_string": new})


async def test_links_inside_work_and_links_to_the_outside_do_not(box, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("value = 1\n")
    assert not (await edit(box, "link.py", "value = 1", "value = 2")).error
    found = await box.delta()
    assert [(c.path, c.content) for c in found] == [("pkg/core.py", b"value = 2\n")]
    await bash(box, f"ln -s {victim} out; ln -s /etc/passwd etc; ln -s / root; ln -s /proc self")
    # The box has a /tmp of its own: what stands there is another file.
    await bash(box, f"mkdir -p {victim.parent}")
    assert (await edit(box, "out", "value", "pwned")).error
    assert not (await box.tool("Write", {"file_path": "out", "content": "its own"})).error
    for path in ("etc", "root/etc/passwd", "self/self/environ", "root/usr/x", "/etc/x"):
        assert (await edit(box, path, "value", "pwned")).error, path
        assert (await box.tool("Write", {"file_path": path, "content": "pwned"})).error, path
        assert (await box.tool("Read", {"file_path": path})).error, path
    assert victim.read_text() == "value = 1\n"


async def test_a_directory_that_becomes_a_link_between_two_calls(box):
    assert not (await box.tool("Write", {"file_path": "pkg/new.py", "content": "a"})).error
    await bash(box, "rm -rf pkg; ln -s /etc pkg")
    seen = await box.tool("Write", {"file_path": "pkg/new.py", "content": "b"})
    assert seen.error and "outside" in seen.text
    assert [change.path for change in await box.delta()] == ["pkg/core.py", "pkg/deep/leaf.py"]


async def test_files_of_a_closed_directory_are_edited_and_none_are_made(box):
    await bash(box, "chmod 555 pkg; ln pkg/core.py same.py; chmod 755 pkg/core.py")
    assert not (await edit(box, "pkg/core.py", "value = 1", "value = 2")).error
    assert (await box.tool("Write", {"file_path": "pkg/new.py", "content": ""})).error
    seen = await bash(box, "cat same.py; ls -A pkg; stat -c %a pkg pkg/core.py")
    assert "STDOUT:\nvalue = 2\ncore.py\ndeep\n555\n755\n" in seen.text


async def test_a_full_disk_changes_nothing(start):
    box = await start(Limits(disk=4 << 20))
    await bash(box, "cp pkg/core.py a.py; ln a.py b.py; head -c 8000000 /dev/zero > fill")
    big = "x" * 100_000
    for path in ("a.py", "pkg/core.py", "new/c.py"):
        seen = await box.tool("Write", {"file_path": path, "content": big})
        assert seen.error and "No space left on device" in seen.text and "None" not in seen.text
    seen = await bash(box, "cat a.py pkg/core.py; ls -A . pkg; rm fill")
    assert "value = 1\nvalue = 1\n" in seen.text
    assert "new" not in seen.text and ".part" not in seen.text
    assert not (await box.tool("Write", {"file_path": "new/c.py", "content": big})).error


async def test_a_pipe_is_no_file_and_blocks_nobody(box):
    await bash(box, "mkfifo pipe; ln -s /dev/zero zero; ln -s loop loop")
    for path in ("pipe", "zero", "loop", "/dev/stdin"):
        assert (await box.tool("Read", {"file_path": path})).error, path
    assert (await box.tool("Glob", {"pattern": "**/*.py"})).text.count(".py") >= 2


async def test_nothing_of_a_call_is_left_when_its_output_is_shown(box, census):
    seen = await bash(box, f"sleep {census.mark} & (setsid sleep {census.mark} &); echo done")
    assert "done" in seen.text and not seen.error and census.count() == 0
    late = await bash(box, f"trap '' TERM; echo begun; sleep {census.mark}", timeout=1)
    assert late.error and "Timed out" in late.text and "begun" in late.text
    assert census.count() == 0


async def test_the_environment_of_the_task_comes_first_in_a_login_shell(engine, tree, tmp_path):
    tool = tmp_path / "venv" / "bin" / "python"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho the venv\n")
    tool.chmod(0o755)
    spec = SandboxSpec(tree, {"/venv": tmp_path / "venv"}, {"PATH": "/venv/bin:/usr/bin:/bin"})
    box = await engine.start(spec)
    try:
        assert "the venv" in (await bash(box, "python; command -v python")).text
    finally:
        await box.close()


@pytest.mark.slow
async def test_a_hundred_thousand_files_are_listed_within_bounds(box):
    await bash(box, "mkdir many; cd many; seq 100000 | xargs touch", timeout=120)
    seen = await box.tool("Glob", {"pattern": "**/*"})
    assert not seen.error and len(seen.text.splitlines()) <= 1010
