import asyncio
import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tadpole.protocols import LeftOut, LeftOutReason, Limits, SandboxSpec
from tadpole.sandboxes.binaries import box_python
from tadpole.sandboxes.inside import files
from tadpole.task import FileChange

LINK = LeftOutReason.LINK


async def bash(box, script):
    result = await box.exec(["/bin/bash", "-c", script], timeout=20)
    assert result.code == 0, result
    return result


def by_path(changes):
    return {change.path: change for change in changes}


async def test_an_untouched_tree_has_none(box):
    assert await box.delta() == ()
    await bash(box, "touch run.sh; cat pkg/core.py; echo 'value = 1' > pkg/core.py")
    assert await box.delta() == ()


async def test_new_changed_deleted_and_mode(box):
    await bash(
        box,
        "echo 'value = 2' > pkg/core.py; rm pkg/deep/leaf.py; echo n > new.sh; chmod +x new.sh;"
        "chmod -x run.sh; mkdir é; echo u > 'é/ü.txt'",
    )
    found = await box.delta()
    assert found == (
        FileChange("new.sh", b"n\n", True),
        FileChange("pkg/core.py", b"value = 2\n"),
        FileChange("pkg/deep/leaf.py", None),
        FileChange("run.sh", b"#!/bin/sh\necho run\n"),
        FileChange("é/ü.txt", b"u\n"),
    )


async def test_rename_is_a_deletion_and_a_new_file(box):
    await bash(box, "mv pkg/core.py pkg/moved.py; mv pkg/deep pkg/shallow")
    found = by_path(await box.delta())
    assert set(found) == {
        "pkg/core.py",
        "pkg/moved.py",
        "pkg/deep/leaf.py",
        "pkg/shallow/leaf.py",
    }
    assert found["pkg/core.py"].content is None and found["pkg/deep/leaf.py"].content is None
    assert found["pkg/moved.py"].content == b"value = 1\n"


async def test_directories_made_anew_and_kinds_swapped(box):
    await bash(
        box,
        "rm -rf pkg && mkdir -p pkg && echo 'value = 3' > pkg/core.py;"
        "rm run.sh; mkdir run.sh; echo x > run.sh/x",
    )
    assert await box.delta() == (
        FileChange("pkg/core.py", b"value = 3\n"),
        FileChange("pkg/deep/leaf.py", None),
        FileChange("run.sh", None),
        FileChange("run.sh/x", b"x\n"),
    )


async def test_everything_removed(box, tree):
    await box.exec(["/bin/bash", "-c", "rm -rf /repo/* /repo/.git"], timeout=20)
    assert [change.path for change in await box.delta()] == [
        "pkg/core.py",
        "pkg/deep/leaf.py",
        "run.sh",
    ]
    assert (tree / "pkg/deep/leaf.py").exists() and (tree / ".git/HEAD").exists()


async def test_specials_links_caches_and_strange_names_stay_out(box):
    await bash(
        box,
        "mkfifo fifo; ln -s /etc/passwd out; ln -s pkg in; rm pkg/core.py; ln -s /etc/group "
        "pkg/core.py; mkdir __pycache__ .git/hooks sub sub/.git; echo x > __pycache__/a.pyc;"
        "echo x > b.pyc; echo x > .git/hooks/pre-commit; echo x > sub/.git/config;"
        "printf x > $'bad\\xff'; truncate -s 1000M sparse; "
        "python3 -c 'import socket; socket.socket(1).bind(\"sock\")' || true",
    )
    assert await box.delta() == (FileChange("pkg/core.py", None),)
    left_out = {one.reason: one for one in box.left_out}
    assert left_out[LeftOutReason.ROOM].paths == ("sparse",)
    assert left_out[LeftOutReason.LINK].paths == ("in", "out", "pkg/core.py")
    assert left_out[LeftOutReason.REPOSITORY].paths == ("sub",)  # P6
    assert left_out[LeftOutReason.NAME].paths == ("bad\\udcff",)
    assert "fifo" in left_out[LeftOutReason.KIND].paths
    assert str(left_out[LeftOutReason.ROOM]).endswith("too deep: 'sparse'")


async def test_links_of_the_initial_tree_that_are_gone_or_lead_elsewhere_are_told(box):
    await bash(box, "touch -h link.py; ln -sfn pkg/core.py link.py")
    assert (await box.delta(), box.left_out) == ((), ())
    await bash(box, "ln -sfn pkg/deep/leaf.py link.py")
    assert (await box.delta(), box.left_out) == ((), (LeftOut(LINK, 1, ("link.py",)),))
    await bash(box, "rm link.py")
    assert (await box.delta(), box.left_out) == ((), (LeftOut(LINK, 1, ("link.py",)),))
    await bash(box, "echo file > link.py")
    assert await box.delta() == (FileChange("link.py", b"file\n"),) and box.left_out == ()


async def test_a_repository_made_inside_is_told_and_its_files_are_in(box):
    """P6: never a gitlink."""
    await bash(box, "git init -q sub/dep; echo 1 > sub/dep/new.py; mkdir two; : > two/.git")
    assert await box.delta() == (FileChange("sub/dep/new.py", b"1\n"),)
    assert box.left_out == (LeftOut(LeftOutReason.REPOSITORY, 2, ("sub/dep", "two")),)


async def test_unreadable_and_deep(box):
    await bash(
        box,
        "echo s > secret; chmod 000 secret; mkdir closed; echo c > closed/c; chmod 000 closed;"
        "d=.; for i in $(seq 300); do d=$d/d; done; mkdir -p $d; echo deep > $d/deep",
    )
    found = by_path(await box.delta())
    assert found["secret"].content == b"s\n" and found["closed/c"].content == b"c\n"
    assert any(path.endswith("/d/deep") for path in found)


async def test_what_no_host_could_name_is_told_and_kills_nothing(box):
    deeper = f"import os\nfor _ in range(1500): os.mkdir({'n' * 20!r}); os.chdir({'n' * 20!r})"
    await box.exec([str(box_python()), "-I", "-S", "-c", deeper + "\nopen('x', 'w')"], timeout=60)
    await bash(box, "d=.; for i in $(seq 600); do d=$d/d; done; mkdir -p $d; echo deep > $d/deep")
    assert await box.delta() == ()
    [left_out] = box.left_out
    assert (left_out.reason, left_out.count) == (LeftOutReason.ROOM, 2)
    assert all(len(path) <= 200 for path in left_out.paths)


async def test_more_files_than_fit_leave_the_new_ones_out(box):
    await bash(box, "mkdir many; cd many; seq 6000 | xargs touch; echo 'v = 1' > ../run.sh")
    found = await box.delta()
    assert len(found) == 5000
    [left_out] = box.left_out
    assert (left_out.reason, left_out.count) == (LeftOutReason.ROOM, 1001)
    assert len(left_out.paths) == 1000 and str(left_out).endswith("' and 981 more")
    assert by_path(found)["run.sh"].content == b"v = 1\n"


@pytest.fixture
def delta(monkeypatch):
    """The module, as it is found inside a box."""
    monkeypatch.syspath_prepend(str(Path(files.__file__).parent))
    return importlib.import_module("delta")


def test_a_copied_tree_tells_the_same(tree, tmp_path, delta):
    """Where there is no overlay, the box copies the tree and compares it as a whole."""
    work = tmp_path / "work"
    work.mkdir()
    lower = os.open(tree, os.O_RDONLY)
    try:
        files.copy_tree(lower, str(work))
        assert (work / "link.py").is_symlink() and os.access(work / "run.sh", os.X_OK)
        copied = SimpleNamespace(workdir=str(work), lower=lower, upper=None)
        assert delta.Delta(copied, 100, 1 << 20).collect() == []
        (work / "pkg/core.py").write_text("value = 2\n")
        (work / "pkg/deep/leaf.py").rename(work / "new.py")
        (work / "pkg/deep").rmdir()
        (work / "run.sh").chmod(0o644)
        os.mkfifo(work / "fifo")
        (work / "link.py").unlink()
        (work / "other").symlink_to("/etc")
        changed = delta.Delta(copied, 100, 1 << 20)
        assert changed.collect() == [
            ("new.py", b"leaf = 1\n", False),
            ("pkg/core.py", b"value = 2\n", False),
            ("pkg/deep/leaf.py", None, False),
            ("run.sh", b"#!/bin/sh\necho run\n", False),
        ]
        assert changed.left_out == {"kind": (1, ["fifo"]), "link": (2, ["other", "link.py"])}
    finally:
        os.close(lower)


async def test_a_giant_file_can_be_removed(engine, tree):
    """It was read to find out that it was there, and its box died of that."""
    with open(tree / "gone.bin", "wb") as giant:
        giant.truncate(1100 << 20)  # more than the box's own process may take
    box = await engine.start(SandboxSpec(tree, limits=Limits(memory=1 << 30, disk=2 << 30)))
    try:
        await bash(box, "rm gone.bin")
        assert await box.delta() == (FileChange("gone.bin", None),)
    finally:
        await box.close()


def test_what_is_as_it_was_is_not_left_out_for_its_size(tree, tmp_path, delta):
    (tmp_path / "work").mkdir()
    lower = os.open(tree, os.O_RDONLY)
    try:
        files.copy_tree(lower, str(tmp_path / "work"))
        (tmp_path / "work/pkg/deep/leaf.py").write_text("leaf = 2\n")
        copied = SimpleNamespace(workdir=str(tmp_path / "work"), lower=lower, upper=None)
        changed = delta.Delta(copied, 100, 3)  # bytes
        assert changed.collect() == [] and changed.left_out == {"room": (1, ["pkg/deep/leaf.py"])}
    finally:
        os.close(lower)


async def test_a_closed_program_stays_a_program(box):
    await bash(box, "printf x > program; chmod 111 program; printf y > data; chmod 000 data")
    found = by_path(await box.delta())
    assert found["program"] == FileChange("program", b"x", True)
    assert found["data"] == FileChange("data", b"y")


async def test_names_by_case_form_line_break_and_length(box):
    await bash(
        box,
        "mv run.sh RUN.sh; printf c > $'caf\\xc3\\xa9'; printf d > $'cafe\\xcc\\x81';"
        f"printf l > $'line\\nbreak'; printf h > {'h' * 255}; printf b > 'back\\slash'",
    )
    found = by_path(await box.delta())
    assert found["run.sh"].content is None and found["RUN.sh"].executable
    assert found["caf\u00e9"].content == b"c" and found["cafe\u0301"].content == b"d"
    assert found["line\nbreak"].content == b"l" and found["h" * 255].content == b"h"
    assert found["back\\slash"].content == b"b"


_watching = False
_touched: list[str] = []


def _watch(event, arguments):
    """What this process opens, lists, follows or starts; a hook cannot be taken out again."""
    if _watching and (event in ("open", "subprocess.Popen") or event.startswith("os.")):
        _touched.append(f"{event} {arguments[0]!r}")


async def test_the_host_looks_nothing_up_for_a_delta(box, tree):
    """Whatever the agent made of its tree, the host gets bytes and never follows a path."""
    await bash(
        box,
        "ln -s /etc/passwd passwd; ln -s / root; rm -rf pkg; ln -s /proc/self pkg; mkfifo fifo;"
        f"mkdir run; mkfifo run/.box-1; ln -s {tree} here; rm run.sh; mkfifo run.sh;"
        "mkdir .git/hooks; echo 'touch /tmp/pwned' > .git/hooks/post-checkout;"
        "printf '[core]\\n\\tfsmonitor = touch /tmp/pwned\\n' > .git/config; echo n > new.py",
    )
    global _watching
    sys.addaudithook(_watch)
    _touched.clear()
    _watching = True
    try:
        found = await asyncio.wait_for(box.delta(), 30)
        content = await box.read("new.py")
        with pytest.raises(OSError):
            await box.read("fifo")
        looked_up, _ = list(_touched), os.listdir(tree)  # this one is seen
    finally:
        _watching = False
    assert looked_up == [] and _touched
    assert content == b"n\n"
    assert [(change.path, change.content) for change in found] == [
        ("new.py", b"n\n"),
        ("pkg/core.py", None),
        ("pkg/deep/leaf.py", None),
        ("run.sh", None),
    ]
    assert (tree / "pkg/core.py").read_text() == "value = 1\n"
