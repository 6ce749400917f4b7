import time
from pathlib import Path

import pytest


def running(*words):
    """Processes on this machine whose command line has these words (sleep's odd seconds)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[: len(words)] == [word.encode() for word in words]:
            found.append(entry.parent.name)
    return found


def test_g1_dot_directories_are_found_but_not_git(box):
    box.put(".github/workflows/ci.yml", "")
    box.put(".git/x.yml", "")
    box.put("sub/.git/y.yml", "")
    assert box.ok("Glob", pattern="**/*.yml") == ".github/workflows/ci.yml"


def test_g2_brackets_that_exist_are_literal(box):
    box.put("app/[id]/page.tsx", "")
    box.put("app/i/page.tsx", "")
    box.put("[ab].py", "")
    assert box.ok("Glob", pattern="app/[id]/page.tsx") == "app/[id]/page.tsx"
    assert box.ok("Glob", pattern="app/[id]/*.tsx") == "app/[id]/page.tsx"
    assert box.ok("Glob", pattern="[ab].py") == "[ab].py"
    assert box.ok("Glob", pattern="app/[!x]/*") == "app/i/page.tsx"


def test_g4_link_loops_end(box):
    for name in ("a", "d/b", "d/c"):
        box.put(name, "")
    (box.root / "d/loop").symlink_to("..")
    assert box.ok("Glob", pattern="**/*") == "a\nd/b\nd/c"
    assert box.ok("Glob", pattern="d/*") == "d/b\nd/c"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "s/b.py", "s/t/c.py"]),
        ("s/**/*.py", ["s/b.py", "s/t/c.py"]),
        ("**", ["a.py", "n.txt", "s/b.py", "s/t/c.py"]),
        ("s/**", ["s/b.py", "s/t/c.py"]),
        ("./s/*", ["s/b.py"]),
        ("?.py", ["a.py"]),
        ("*.{py,txt}", ["a.py", "n.txt"]),
        ("**/[bc].py", ["s/b.py", "s/t/c.py"]),
        ("s", []),
        ("**/**/**/c.py", ["s/t/c.py"]),
        ("**/***.txt", ["n.txt"]),
        ("*.c", []),
    ],
)
def test_patterns(box, pattern, found):
    for name in ("a.py", "n.txt", "s/b.py", "s/t/c.py"):
        box.put(name, "")
    assert box.ok("Glob", pattern=pattern) == ("\n".join(found) or "No files matched.")


def test_glob_from_a_directory_and_with_an_absolute_pattern(box):
    box.put("s/t/c.py", "")
    assert box.ok("Glob", pattern="**/*.py", path="s") == "s/t/c.py"
    assert box.ok("Glob", pattern=f"{box.root}/s/**/*.py") == "s/t/c.py"
    assert "not a directory" in box.refused("Glob", pattern="*", path="nope")


def test_glob_refuses_a_pattern_that_is_none(box):
    box.put("a", "")
    text = box.refused("Glob", pattern="[z-a]")
    assert text.startswith("ValueError: the pattern cannot be read")


def test_glob_says_how_many_more(box):
    for k in range(1005):
        box.put(f"f{k:04}", "")
    lines = box.ok("Glob", pattern="*").split("\n")
    assert len(lines) == 1001 and lines[-1] == "... 5 more files"


def test_bash_shape(box):
    text = box.ok("Bash", command="echo out; echo err >&2; exit 3", description="try")
    assert text == "Exit code: 3\nSTDOUT:\nout\n\nSTDERR:\nerr\n"


def test_bash_runs_afresh_in_the_work_directory(box):
    box.ok("Bash", command="cd /; export X=1; touch $OLDPWD/made")
    assert box.ok("Bash", command="echo $X; ls").splitlines()[2:4] == ["", "made"]


@pytest.mark.parametrize(
    "command",
    [
        "sleep 601.1 & echo done",
        "(sleep 601.1 &) ; echo done",
        "nohup sleep 601.1 >/dev/null 2>&1 & disown; echo done",
    ],
)
def test_b1_a_background_process_is_not_waited_for(box, command):
    begun = time.monotonic()
    text = box.ok("Bash", command=command)
    assert "done" in text and "Timed out" not in text
    assert time.monotonic() - begun < 30
    assert running("sleep", "601.1") == []


def test_b2_timeout_keeps_what_was_printed_and_ends_the_whole_group(box):
    command = "trap '' TERM; echo started; sleep 602.2 & sleep 602.2"
    begun = time.monotonic()
    text = box.refused("Bash", command=command, timeout=1)
    assert time.monotonic() - begun < 20
    assert text.startswith("Timed out after 1 s") and "STDOUT:\nstarted" in text
    assert running("sleep", "602.2") == []


def test_b3_a_bad_byte_loses_nothing(box):
    text = box.ok("Bash", command=r"printf 'ok\xff\n'; echo end")
    assert text.startswith("Exit code: 0") and "ok\ufffd\nend" in text


def test_b5_stdin_is_closed(box):
    assert "EOFError" in box.ok("Bash", command="python3 -c 'input()'")
    assert "read=1" in box.ok("Bash", command="read -p name x; echo read=$?", timeout=30)


@pytest.mark.parametrize("megabytes", [0.05, 2])
def test_b6_head_and_tail_stay(box, megabytes):
    count = int(megabytes * 100_000)
    command = f"seq {count} | sed 's/$/ ......../'; echo FAILED test_x"
    text = box.ok("Bash", command=command)
    assert "\n1 ...." in text and "FAILED test_x" in text and len(text) < 30_200
    cut = int(text.split("[truncated ")[1].split(" ")[0])
    whole = sum(len(f"{k} ........\n") for k in range(1, count + 1)) + len("FAILED test_x\n")
    kept = len(text) - len(f"Exit code: 0\nSTDOUT:\n\n[truncated {cut} chars]\n\nSTDERR:\n")
    assert cut + kept == whole


def test_both_streams_share_the_room(box):
    command = "seq 20000; seq 20000 >&2; echo LAST >&2"
    text = box.ok("Bash", command=command)
    assert len(text) < 30_300 and text.count("[truncated") == 2 and text.endswith("LAST\n")


def test_memory_and_output_endings_are_errors(box):
    box.bash = lambda command, seconds: {
        "code": 137, "stdout": b"part", "stderr": b"", "reason": "memory", "seconds": 1.0,
    }  # fmt: skip
    text, error = box.call("Bash", command="x")
    assert error and "memory" in text and "part" in text
