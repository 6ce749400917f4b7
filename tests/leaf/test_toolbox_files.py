"""What the tools leave of the files around the one that is asked for, also where they fail."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tadpole.leaf import toolbox
from tadpole.leaf.toolbox import seen


def names(box):
    return sorted(str(path.relative_to(box.root)) for path in box.root.rglob("*"))


@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_a_hard_link_stays_one(box, tool):
    path = box.put("one", "a long text\n", 0o755)
    os.link(path, box.root / "two")
    more = (
        {"old_string": "a long", "new_string": "a"} if tool == "Edit" else {"content": "a text\n"}
    )
    box.ok(tool, file_path="one", **more)
    assert box.get("one") == box.get("two") == b"a text\n"
    assert path.stat().st_nlink == 2 and stat.S_IMODE(path.stat().st_mode) == 0o755
    assert names(box) == ["one", "two"]


@pytest.mark.parametrize("kind", ["file", "pipe", "link", "directory"])
def test_nothing_that_lies_beside_is_written_over(box, kind):
    """The new content is made beside the old one, under a name that the agent can guess."""
    victim, beside = box.put("victim", "keep\n"), box.root / f".leaf-{os.getpid()}-0.part"
    make = {
        "file": lambda: beside.write_text("mine\n"),
        "pipe": lambda: os.mkfifo(beside),
        "link": lambda: beside.symlink_to(victim),
        "directory": beside.mkdir,
    }
    make[kind]()
    before = beside.lstat()
    box.ok("Write", file_path="a.txt", content="new\n")
    box.ok("Edit", file_path="a.txt", old_string="new", new_string="newer")
    assert beside.lstat() == before and box.get("a.txt") == b"newer\n"
    assert box.get("victim") == b"keep\n"
    assert names(box) == sorted([beside.name, "a.txt", "victim"])


FULL = """
import json, os, resource, sys
sys.path.insert(0, sys.argv[1])
from tadpole.leaf import toolbox
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), resource.RLIM_INFINITY))
name, arguments = json.loads(sys.argv[3])
print(json.dumps(toolbox.call(name, arguments, sys.argv[2], None)))
"""


def alone(box, tool, arguments, room):
    """The call in a process of its own: the size of a file is bounded as by a full disk."""
    source = str(Path(toolbox.__file__).parents[3])
    argv = [sys.executable, "-c", FULL, source, str(box.root), f'["{tool}", {arguments}]', room]
    done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL)
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("path", "linked"),
    [("a.txt", False), ("a.txt", True), ("new/deep/b.txt", False)],
    ids=["replaced", "hard link", "new"],
)
def test_where_there_is_no_room_everything_is_as_it_was(box, path, linked):
    box.put("a.txt", "before\n" * 10)
    if linked:
        os.link(box.root / "a.txt", box.root / "other")
    before = names(box), box.get("a.txt")
    text = alone(box, "Write", f'{{"file_path": "{path}", "content": "{"x" * 9000}"}}', "5000")
    assert "File too large" in text and "None" not in text and "true" in text
    assert (names(box), box.get("a.txt")) == before


def test_a_path_that_cannot_be_leaves_no_directories(box):
    box.put("a.py", "x\n")
    text = box.refused("Write", file_path="new/deep/" + "x" * 300, content="")
    assert "File name too long" in text
    text = box.refused("Write", file_path="new/" + "y" * 300 + "/a", content="")
    assert "File name too long" in text and names(box) == ["a.py"]
    text = box.refused("Write", file_path="a.py/b/c.py", content="")
    assert text == ("NotADirectoryError: a.py/b/c.py: a.py is a file, and nothing can lie below it")


def test_an_edit_that_would_change_nothing_says_so(box):
    for ends in ("\n", "\r\n"):
        box.put("a", f"one{ends}two{ends}")
        text = box.refused("Edit", file_path="a", old_string="one\r\ntwo", new_string="one\ntwo")
        assert "line endings alone" in text and "use Bash" in text


@pytest.mark.parametrize(
    ("before", "old", "shown"),
    [
        ("cafe\u0301 = 1\n", "café = 1", r"'cafe\u0301 = 1'"),
        ("café = 1\n", "cafe\u0301 = 1", r"'caf\xe9 = 1'"),
        ("x\u00a0= 1\n", "x = 1", r"'x\xa0= 1'"),
        ("x\u200b = 1\n", "x = 1", r"'x\u200b = 1'"),
    ],
)
def test_characters_that_look_the_same_are_shown_apart(box, before, old, shown):
    box.put("a", before)
    text = box.refused("Edit", file_path="a", old_string=old, new_string="y")
    assert "look the same" in text and shown in text


def test_numbers_of_empty_lines_are_line_numbers_too(box):
    box.put("a", "def f():\n\n    return 1\n")
    text = box.refused(
        "Edit", file_path="a", old_string="1. def f():\n2.\n3.     return 1", new_string="x"
    )
    assert "leave out the line numbers" in text


def test_what_is_remembered_of_files_is_bounded(box, monkeypatch):
    monkeypatch.setattr(seen, "SEEN_CHARS", 10_000)
    seen.texts.clear()
    for k in range(50):
        box.put(f"f{k}", f"{k} " * 400)
        box.ok("Read", file_path=f"f{k}")
    held = [text for texts in seen.texts.values() for text in texts]
    assert 0 < sum(map(len, held)) <= 10_000
    assert any(text.startswith("49 ") for text in held)


def test_a_refusal_does_not_repeat_a_whole_window(box):
    text = box.refused("Read", file_path="/" + "x/" * 40_000)
    assert len(text) < toolbox.ERROR_CHARS + 100 and "[truncated " in text


def test_a_tree_deeper_than_pythons_stack_is_listed(box):
    here = os.open(box.root, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    box.put("a.py", "")
    try:
        assert box.ok("Glob", pattern="**/*.py") == "a.py"
        text = toolbox.call("Read", {"file_path": "b.py"}, str(box.root), None)[0]
        assert text.startswith("FileNotFoundError")
    finally:
        subprocess.run(["rm", "-rf", str(box.root / "d")], check=True, stdin=subprocess.DEVNULL)


def test_a_name_with_line_breaks_is_one_line(box):
    box.put("a\nb.py", "")
    assert box.ok("Glob", pattern="*.py") == "a\\x0ab.py"


def test_reading_on_works_for_a_name_that_looks_like_an_option(box):
    box.put("-n.txt", "x" * 30_000)
    text = box.ok("Read", file_path="-n.txt")
    command = text[text.index("sed -n") :].split("\n")[0]
    done = subprocess.run(
        ["bash", "-c", command], cwd=box.root, capture_output=True, stdin=subprocess.DEVNULL
    )
    assert done.stdout.strip(b"x\n") == b"" and len(done.stdout) > 9000
