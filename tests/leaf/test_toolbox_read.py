import os
import subprocess

import pytest

from tadpole.leaf.toolbox.read import READ_CHARS


def test_numbered_lines_under_the_path(box):
    box.put("src/a.py", "x = 1\ny = 2\n")
    assert box.ok("Read", file_path="src/a.py") == "src/a.py\n1. x = 1\n2. y = 2"
    assert box.ok("Read", file_path=str(box.root / "src/a.py")).startswith("src/a.py\n")


def test_window(box):
    box.put("a", "".join(f"l{k}\n" for k in range(1, 31)))
    assert box.ok("Read", file_path="a", offset=10, limit=2) == "a\n10. l10\n11. l11"
    assert box.ok("Read", file_path="a", offset=" +10 ", limit="5").count("\n") == 5  # E23
    assert box.ok("Read", file_path="a", offset=0, limit=1) == "a\n1. l1"
    assert "ends at line 30" in box.refused("Read", file_path="a", offset=31)


def test_r1_one_long_line_has_a_way_on(box):
    box.put("a.txt", b"x" * 32_768)
    text = box.ok("Read", file_path="a.txt")
    shown = text.splitlines()[1].removeprefix("1. ")
    assert 19_000 < len(shown) <= 20_000 and set(shown) == {"x"}
    assert "line 1 is 32,768 characters; showing 1-" in text
    command = text[text.index("sed -n") :].split("\n")[0]
    rest = subprocess.run(
        ["bash", "-c", command],
        cwd=box.root,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    ).stdout
    assert len(shown) + len(rest.strip()) == 32_768


def test_r2_long_files_name_total_and_next_offset(box):
    lines = [f'"key{k}": {k},' for k in range(8000)]
    box.put("a.json", "\n".join(lines) + "\n")
    seen, offset, reads = [], 1, 0
    while offset:
        text = box.ok("Read", file_path="a.json", offset=offset)
        assert len(text) < READ_CHARS + 200
        body = [row for row in text.split("\n")[1:] if not row.startswith("[")]
        seen += [row.split(". ", 1)[1] for row in body]
        offset, reads = 0, reads + 1
        if "[truncated" in text:
            assert "of 8000" in text
            offset = int(text.rsplit("offset=", 1)[1].rstrip("]"))
    assert seen == lines and reads > 5


def test_a_long_line_in_the_middle_does_not_stop_the_reading(box):
    box.put("a", b"one\n" + b"y" * 50_000 + b"\nthree\n")
    first = box.ok("Read", file_path="a")
    assert "1. one" in first and "offset=2" in first
    second = box.ok("Read", file_path="a", offset=2)
    assert "line 2 is 50,000 characters" in second and "offset=3" in second
    assert "3. three" in box.ok("Read", file_path="a", offset=3)


def test_r4_a_missing_final_newline_shows(box):
    box.put("a", "a\nb")
    box.put("b", "a\nb\n")
    assert box.ok("Read", file_path="a") == "a\n1. a\n2. b\n[no newline at end of file]"
    assert box.ok("Read", file_path="b") == "b\n1. a\n2. b"
    box.put("c", "")
    assert "empty" in box.ok("Read", file_path="c")


def test_r5_what_is_no_text_file(box):
    box.put("a.bin", b"PK\0\1" * 10)
    box.put("src/utils.py", "x\n")
    os.mkfifo(box.root / "pipe")
    assert "binary, 40 bytes" in box.refused("Read", file_path="a.bin")
    assert "is a directory" in box.refused("Read", file_path="src")
    assert "src/utils.py" in box.refused("Read", file_path="src/utlis.py")
    assert "src/utils.py" in box.refused("Read", file_path="utils.py")
    assert "no regular file" in box.refused("Read", file_path="pipe")
    assert "outside" in box.refused("Read", file_path="/dev/zero")


def test_read_and_edit_agree_on_odd_bytes(box):
    box.put("a.js", b"\xef\xbb\xbfx = 1\r\n// caf\xe9\r\n")
    text = box.ok("Read", file_path="a.js")
    assert text.split("\n")[:3] == ["a.js", "1. x = 1", "2. // caf\\xe9"]
    assert "1 bytes are not UTF-8" in text
    text.encode()  # can be sent on


def test_line_numbers_are_those_of_grep(box):
    box.put("a", "a\fb\u2028c\x85d\nneedle\n")
    assert "2. needle" in box.ok("Read", file_path="a")


@pytest.mark.parametrize("tool", ["Read", "Write", "Edit", "Glob"])
@pytest.mark.parametrize("path", ["/etc/hosts", "../" * 20 + "etc/hosts", "out"])
def test_paths_outside_are_refused(box, tool, path):
    (box.root / "out").symlink_to("/etc/hosts")
    arguments = {
        "Read": {"file_path": path},
        "Write": {"file_path": path, "content": "x"},
        "Edit": {"file_path": path, "old_string": "localhost", "new_string": "x"},
        "Glob": {"pattern": "*", "path": path},
    }
    text = box.refused(tool, **arguments[tool])
    assert text.startswith("PermissionError: ") and "outside" in text


def test_tmp_is_inside(box, tmp_path):
    (tmp_path / "note").write_text("hi\n")
    assert "1. hi" in box.ok("Read", file_path=str(tmp_path / "note"))


@pytest.mark.parametrize("window", [200, 768, 4000])
def test_a_small_window_is_not_filled_by_one_result(box, window):
    """The loop asks for results that fit; the model is not told of the parameter."""
    box.put("a.py", "".join(f"line {k} = {k}\n" for k in range(3000)))
    for k in range(300):
        box.put(f"many/file{k:04}.txt", "")
    text = box.ok("Read", file_path="a.py", max_chars=window)
    body = [row for row in text.split("\n") if not row.startswith("[")]
    assert len("\n".join(body)) <= window and "of 3000; read on with offset=" in text
    assert text.endswith(f"offset={len(body)}") and len(text) < window + 120
    listed = box.ok("Glob", pattern="**/*.txt", max_chars=window).split("\n")
    assert len("\n".join(listed)) < window + 30
    assert listed[-1] == f"... {300 - len(listed) + 1} more files"
    said = box.ok("Bash", command="seq 9000; echo LAST", max_chars=window)
    assert len(said) < window + 120 and "\n1\n" in said and "LAST" in said
    assert "max_chars" not in box.refused("Read")


def test_r1_reading_on_loses_no_byte_of_a_line_that_is_not_ascii(box):
    line = b"\xef\xbb\xbf" + "é€".encode() * 9000 + b"\xe9\xe9" + "ü".encode() * 9000
    box.put("a.txt", line + b"\n")
    text = box.ok("Read", file_path="a.txt")
    shown = text.split("\n")[1].removeprefix("1. ")
    command = text[text.index("sed -n") :].split("\n")[0]
    rest = subprocess.run(
        ["bash", "-c", command], cwd=box.root, capture_output=True, stdin=subprocess.DEVNULL
    ).stdout
    assert (
        b"\xef\xbb\xbf" + shown.replace("\\xe9", "").encode() + rest.replace(b"\xe9\xe9", b"")
        == line.replace(b"\xe9\xe9", b"") + b"\n"
    )


def test_an_enormous_line_does_not_come_back_in_a_refusal(box):
    box.put("a.txt", "\tvalue = " + "x" * 200_000 + "\n")
    text = box.refused(
        "Edit", file_path="a.txt", old_string="    value = " + "x" * 200_000, new_string="y"
    )
    assert "indented with tabs here" in text and len(text) < 1000


def test_every_line_has_the_number_that_grep_gives_it(box):
    odd = ["a\fb", "c\x0bd", "e\x1cf", "g\x85h", "i\u2028j", "k\rl", "", "  ", "m\u2029", "n"]
    box.put("a", "\n".join(odd) + "\r\nlast\n")
    counted = subprocess.run(
        ["grep", "-an", "", "a"], cwd=box.root, capture_output=True, stdin=subprocess.DEVNULL
    ).stdout.decode()
    told = box.ok("Read", file_path="a").split("\n")[1:]
    assert [row.replace(". ", ":", 1) for row in told] == [
        row.removesuffix("\r") for row in counted.removesuffix("\n").split("\n")
    ]
