from pathlib import Path

import pytest

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.protocols import ExecReason, Limits, SandboxSpec
from tadpole.sandboxes.docker import docker
from tadpole.sandboxes.inside import wire
from tadpole.settings import BoxKind
from tadpole.task import FileChange


async def bash(box, script, timeout=20.0, stdin=b""):
    return await box.exec(["/bin/bash", "-lc", script], timeout=timeout, stdin=stdin)


async def test_only_files_persist_and_the_tree_is_never_written(box, tree):
    result = await bash(box, "export X=1; cd pkg; echo 'value = 2' > core.py; pwd")
    assert (result.code, result.reason, result.stdout) == (0, ExecReason.EXITED, "/repo/pkg\n")
    result = await bash(box, 'cat pkg/core.py; pwd; echo "[$X]"')
    assert result.stdout == "value = 2\n/repo\n[]\n"
    assert (tree / "pkg/core.py").read_text() == "value = 1\n"


async def test_exit_codes_and_signals(box):
    assert (await box.exec(["/bin/bash", "-c", "exit 7"], timeout=60)).code == 7
    killed = await bash(box, "kill -SEGV $$")
    assert (killed.code, killed.reason) == (139, ExecReason.SIGNAL)
    for program in ("no-such-program", "./no-such", "/no/such", "pkg/core.py"):
        missing = await box.exec([program], timeout=60)
        assert missing.code == 127 and "not found" in missing.stderr


async def test_standard_input_is_what_is_given_and_else_closed(box):
    data = b"\x00\xff" * 500_000
    counted = await box.exec(["wc", "-c"], timeout=20, stdin=data)
    assert counted.stdout.strip() == "1000000"
    closed = await box.exec(["cat"], timeout=60)
    assert (closed.code, closed.stdout) == (0, "")


async def test_background_children_do_not_hold_a_call(box, census):  # B1
    result = await bash(box, f"sleep {census.mark} & echo done")
    assert result.stdout == "done\n" and result.reason is ExecReason.EXITED
    assert census.count() == 0


async def test_a_child_that_ignores_sigterm_is_killed_at_the_deadline(box, census):  # B2, B4
    script = f"trap '' TERM INT HUP; echo partial; sleep {census.mark} & while :; do :; done"
    result = await bash(box, script, timeout=0.5)
    assert result.reason is ExecReason.TIMEOUT and result.code == 137
    assert result.stdout == "partial\n" and result.seconds >= 0.5
    assert census.count() == 0


async def test_bytes_that_are_not_utf8_are_replaced(box):  # B3
    result = await bash(box, r"printf 'ok\xff\n'; echo end")
    assert (result.code, result.stdout) == (0, "ok\N{REPLACEMENT CHARACTER}\nend\n")


async def test_what_asks_a_person_fails_at_once(box):  # B5
    for script in ("read line", "git commit", "sudo -k true", "su", "read -p name x"):
        result = await bash(box, script)
        assert result.code != 0 and result.reason is ExecReason.EXITED, script


async def test_both_ends_of_long_output_are_kept(start):  # B6
    box = await start(Limits(output_head=100, output_tail=100))
    result = await bash(box, "seq 200000; echo FAILED test_x")
    assert result.stdout.startswith("1\n2\n") and result.stdout.endswith("FAILED test_x\n")
    assert "bytes cut" in result.stdout and len(result.stdout) < 300
    line = await bash(box, "head -c 1000000 /dev/zero | tr '\\0' x")
    assert len(line.stdout) < 300 and "999800 bytes cut" in line.stdout


async def test_environment_is_the_boxes_own(start, monkeypatch):
    monkeypatch.setenv("HOST_SECRET", "1")
    box = await start(env={"PATH": "/opt/x/bin:/usr/bin:/bin", "NEW": "a b"})
    result = await bash(box, "env")
    assert "HOST_SECRET" not in result.stdout
    assert "NEW=a b\n" in result.stdout and "PATH=/opt/x/bin:" in result.stdout


async def test_mounts_are_there_and_read_only(start, tmp_path):
    tool = tmp_path / "venv" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho tool\n")
    tool.chmod(0o755)
    box = await start(mounts={"/opt/venv": tmp_path / "venv"})
    assert (await bash(box, "/opt/venv/bin/tool")).stdout == "tool\n"
    assert (await bash(box, "echo x > /opt/venv/bin/tool")).code != 0
    assert tool.read_text() == "#!/bin/sh\necho tool\n"


async def test_mounts_that_are_closed_to_others(start, tmp_path, engine):
    private = tmp_path / "private"  # as a cache below a closed home directory
    (private / "venv" / "bin").mkdir(parents=True)
    (private / "venv" / "bin" / "tool").write_text("#!/bin/sh\necho tool\n")
    (private / "venv" / "bin" / "tool").chmod(0o700)
    private.chmod(0o700)
    if closed_to(engine):
        (private / "venv").chmod(0o700)
        with pytest.raises(SandboxStartError, match=r"chmod -R go\+rX .*/venv"):
            await start(mounts={"/opt/venv": private / "venv"})
        return
    box = await start(mounts={"/opt/venv": private / "venv"})
    assert (await bash(box, "/opt/venv/bin/tool")).stdout == "tool\n"
    assert (await bash(box, "echo x > /opt/venv/bin/tool")).code != 0


def closed_to(engine) -> bool:
    """Whether its boxes cannot be made the owner of what is mounted: then they say so."""
    return engine.kind is BoxKind.CONTAINER and not docker().rootless


async def test_a_tree_closed_to_others_is_writable_in_its_box(start, tree, engine):
    (tree / "pkg/core.py").chmod(0o600)
    if closed_to(engine):
        with pytest.raises(SandboxStartError, match=r"core.py; `chmod -R go\+rX"):
            await start()
        return
    tree.chmod(0o700)
    box = await start()
    result = await bash(box, "echo '# more' >> pkg/core.py && cat pkg/core.py")
    assert result.stdout == "value = 1\n# more\n"


async def test_a_mount_that_would_not_be_seen_is_refused(engine, tree, tmp_path):
    for target, source in (("/tmp/x", tree), ("/repo/x", tree), ("/opt/x", tmp_path / "none")):
        with pytest.raises(SandboxStartError, match=target):
            await engine.start(SandboxSpec(tree=tree, mounts={target: source}))
    with pytest.raises(SandboxStartError, match="not a directory"):
        await engine.start(SandboxSpec(tree=tmp_path / "none"))


async def test_read_and_write(box):
    await box.write(
        [
            FileChange("new/dir/a.bin", bytes(range(256)) * 1000),
            FileChange("run.sh", b"#!/bin/sh\necho new\n", executable=True),
            FileChange("pkg/core.py", None),
            FileChange("absent.py", None),
        ]
    )
    assert await box.read("new/dir/a.bin") == bytes(range(256)) * 1000
    assert await box.read("/repo/run.sh") == b"#!/bin/sh\necho new\n"
    assert (await bash(box, "./run.sh; ls pkg")).stdout == "new\ndeep\n"
    for path in ("pkg/core.py", "pkg", "/dev/zero"):
        with pytest.raises(FileNotFoundError, match=path):
            await box.read(path)
    for path in ("../x", "/etc/x", "a/../../x", ""):
        with pytest.raises(ValueError, match="work tree"):
            await box.write([FileChange(path, b"x")])


async def test_a_file_takes_the_place_of_a_directory_and_the_other_way_round(box):
    await box.write([FileChange("a/b/c.py", b"1"), FileChange("a/d/e.py", b"2")])
    swapped = [FileChange("a", b"file"), FileChange("run.sh/inner", b"in")]
    gone = [FileChange(path, None) for path in ("a/b/c.py", "a/d/e.py", "run.sh")]
    await box.write([*swapped, *gone])
    assert (await box.read("a"), await box.read("run.sh/inner")) == (b"file", b"in")
    for path in ("pkg", "a/x"):
        with pytest.raises(NotADirectoryError):
            await box.write([FileChange(path, b"")])
    assert await box.read("pkg/core.py") == b"value = 1\n"


async def test_tools_run_inside_with_their_state(box):
    seen = await box.tool("Read", {"file_path": "pkg/core.py"})
    assert (seen.text, seen.error) == ("value = 1\n", False)
    bash_text = (await box.tool("Bash", {"command": "echo hi; exit 3"})).text
    assert bash_text == "3 exited hi\n"
    wrong = await box.tool("Nope", {})
    assert wrong.error and wrong.text.startswith("KeyError")
    assert (await box.tool("Calls", {})).text == "Read Bash Nope Calls"
    with_nul = await box.tool("Bash", {"command": "echo \0"})
    assert with_nul.error and "NUL" in with_nul.text
    too_long = await box.tool("Bash", {"command": "#" * 200_000})
    assert too_long.error and "too long" in too_long.text
    with pytest.raises(ValueError, match="null"):
        await box.exec(["echo", "\0"], timeout=60)


async def test_a_tool_that_hangs_becomes_an_observation(start):
    box = await start(Limits(call_seconds=0.5))
    seen = await box.tool("Hang", {})
    assert seen.error and seen.text.startswith("TimeoutError: Hang")
    assert (await box.tool("Read", {"file_path": "pkg/core.py"})).text == "value = 1\n"


async def test_the_longer_deadline_of_a_bash_tool_counts(start):
    box = await start(Limits(call_seconds=0.3))
    seen = await box.tool("Bash", {"command": "sleep 0.6; echo late", "timeout": 30})
    assert seen.text == "0 exited late\n"


async def test_a_tool_cannot_take_the_hosts_memory(start):
    box = await start(Limits(memory=256 << 20))
    await bash(box, "truncate -s 1024M big; truncate -s 1024M big2")
    seen = await box.tool("Read", {"file_path": "big"})
    assert seen.error and seen.text.startswith("MemoryError")
    assert (await bash(box, "echo alive")).stdout == "alive\n"


async def test_a_careless_call_harms_nothing(box):
    """What cannot be sent is the caller's error; it ended the box."""
    for wrong in ({"file_path": Path("a")}, {"file_path": b"a"}, {"file_path": {1, 2}}):
        with pytest.raises(TypeError):
            await box.tool("Read", wrong)
    for argv in ([], "echo", ["echo", Path("a")]):
        with pytest.raises((TypeError, ValueError)):
            await box.exec(argv, timeout=20)
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    seen = await box.tool("Read", {"file_path": deep})
    assert seen.error and "nested too deeply" in seen.text
    with pytest.raises(ValueError, match="too many for one message"):
        await box.exec(["cat"], timeout=20, stdin=bytes(wire.LARGEST + 1))
    assert (await bash(box, "echo alive")).stdout == "alive\n"


async def test_writing_blocks_on_nothing_and_leaves_nothing_behind(start):
    box = await start(Limits(disk=8 << 20))
    await bash(box, "for i in 0 1 2; do mkfifo .box-1-$i; ln -s /tmp/x pkg/.box-1-$i; done")
    await box.write([FileChange("a.py", b"new\n"), FileChange("pkg/core.py", b"new\n")])
    with pytest.raises(OSError, match="No space"):
        await box.write([FileChange("big", b"x" * (9 << 20))])
    listed = (await bash(box, "ls -A . pkg /tmp; rm .box-* pkg/.box-*")).stdout
    assert "big" not in listed and listed.count(".box-") == 6 and "/tmp:\n" in listed
    await box.write([FileChange("big", b"x" * (4 << 20))])
    assert [change.path for change in await box.delta()] == ["a.py", "big", "pkg/core.py"]


async def test_a_closed_box_says_so(box):
    await box.close()
    await box.close()
    with pytest.raises(SandboxDied):
        await box.exec(["true"], timeout=60)


async def test_git_works_in_the_box(box, tree: Path):
    script = (
        "rm -rf .git && git init -q . && git add -A && "
        "git -c user.name=a -c user.email=b commit -qm x && git status --porcelain && git log"
    )
    result = await bash(box, script)
    assert result.code == 0 and result.stderr == "", result
    assert "Author: a <b>" in result.stdout
