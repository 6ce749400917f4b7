import os
import re
import stat

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tadpole.leaf.toolbox.files import BOM

# (case, bytes before, old, new, options, bytes after)
KEPT = [
    ("E1 LF text against CRLF", b"a\r\nb\r\nc\r\n", "a\nb", "A\nB", {}, b"A\r\nB\r\nc\r\n"),
    (
        "E2 replace_all, no final newline",
        b"alpha\r\nbeta\r\ngamma",
        "alpha\nbeta",
        "x\ny",
        {"replace_all": True},
        b"x\r\ny\r\ngamma",
    ),
    ("E3 mixed endings", b"a\r\nb\nc\r\nd\n", "c", "C", {}, b"a\r\nb\nC\r\nd\n"),
    ("lines put into a CRLF line", b"a\r\nb\r\n", "b", "b\nc", {}, b"a\r\nb\r\nc\r\n"),
    (
        "lines put into the LF line of a mixed file",
        b"a\r\nb\nc\r\n",
        "b",
        "b\nx",
        {},
        b"a\r\nb\nx\nc\r\n",
    ),
    ("a span over both kinds", b"a\r\nb\nc\r\n", "a\nb\nc", "A\nB\nC", {}, b"A\r\nB\nC\r\n"),
    ("a match that begins with a line break", b"a\r\nb\r\n", "\nb", "", {}, b"a\r\n"),
    ("last line of a CRLF file without its end", b"a\r\nb", "b", "b\nc", {}, b"a\r\nb\r\nc"),
    ("lone CR is a character", b"a\rb\n", "a\rb", "c", {}, b"c\n"),
    (
        "E4 Latin-1 byte",
        b"const x = 1;\n// caf\xe9 note\n",
        "x = 1",
        "x = 2",
        {},
        b"const x = 2;\n// caf\xe9 note\n",
    ),
    (
        "E5 GBK bytes",
        b"const x = 1\n\xd6\xd0\xce\xc4",
        "const x",
        "const y",
        {},
        b"const y = 1\n\xd6\xd0\xce\xc4",
    ),
    (
        "E7 BOM and CRLF",
        b"\xef\xbb\xbfimport os\r\n",
        "import os",
        "import sys",
        {},
        b"\xef\xbb\xbfimport sys\r\n",
    ),
    (
        "E14 no pattern, no template",
        b'log("done");',
        'log("done");',
        'log("$& $1 $$ \\1");',
        {},
        b'log("$& $1 $$ \\1");',
    ),
    ("E14 old_string is no pattern", b"a.c abc", "a.c", "\\g<0>", {}, b"\\g<0> abc"),
    (
        "E15 curly quotes elsewhere",
        "x = 1  # “so”\n".encode(),
        "x = 1",
        "x = 2",
        {},
        "x = 2  # “so”\n".encode(),
    ),
    ("E16 hard break", b"one  \ntwo  \n", "two", "2", {}, b"one  \n2  \n"),
    ("replace_all", b"a a a", "a", "b", {"replace_all": "true"}, b"b b b"),
    ("an integer where text was meant", b"x = 1\n", "x = 1", 5, {}, b"5\n"),
    (
        "form feed and U+2028 are no line ends",
        "a\fb\u2028c\n".encode(),
        "b\u2028c",
        "d",
        {},
        b"a\fd\n",
    ),
]


@pytest.mark.parametrize("case", KEPT, ids=[case[0] for case in KEPT])
def test_what_is_not_named_stays(box, case):
    _, before, old, new, options, after = case
    box.put("f.txt", before)
    text = box.ok("Edit", file_path="f.txt", old_string=old, new_string=new, **options)
    assert box.get("f.txt") == after
    count = 3 if before == b"a a a" else 1
    assert text == f"Edited f.txt ({count} replacement{'s' if count > 1 else ''})."


# (case, text before, old, what the refusal says)
REFUSED = [
    ("E8 tabs and spaces", "\tif x:\n\t\treturn 1\n", "    if x:\n        return 1",
     ["indented with tabs here, spaces in your text", r"'\t\treturn 1'"]),
    ("E8 the other way", "    if x:\n", "\tif x:",
     ["indented with spaces here, tabs in your text"]),
    ("another depth", "    if x:\n        y\n", "  if x:\n    y",
     ["only in indentation", "'    if x:'"]),
    ("E9 trailing blanks", "untouched   \nreplace me   \nafter\ntrailing   \n", "replace me\nafter",
     ["only in trailing spaces", "line 2"]),
    ("E10 another middle", "func f() {\n\tx := 1\n\ty := 2\n}\n",
     "func f() {\n\tx := 1\n\ty := 99\n}",
     ["line 3", "y := 2", "y := 99"]),
    ("E15 straight quotes", "say(“hi”)\n", 'say("hi")', ["other quotes", "“hi”"]),
    ("E18 nothing to change", "a\n", "a", ["same"]),
    ("E18 empty old", "a\n", "", ["old_string is empty", "Write"]),
    ("pasted line numbers", "def f():\n    return 1\n", "1. def f():\n2.     return 1",
     ["leave out the line numbers"]),
    ("escapes", "a\n\tb\n", "a\\n\\tb", ["backslash escapes"]),
    ("case", "Return X\n", "return x", ["upper and lower case"]),
    ("several", "x\ny\nx\nx\n", "x", ["3 times", "lines 1, 3, 4", "replace_all"]),
    ("overlapping", "aaa", "aa", ["2 times"]),
    ("near", "def compute_total(items):\n    pass\n", "def compute_totals(item):",
     ["closest line is 1", "compute_total(items)"]),
    ("nothing like it", "a\n", "completely different", ["not in f.txt", "Read"]),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_refusals_say_what_to_do(box, case):
    _, before, old, words = case
    box.put("f.txt", before)
    new = "a" if old == "a" else "new"
    text = box.refused("Edit", file_path="f.txt", old_string=old, new_string=new)
    assert text.startswith("ValueError: ")
    for word in words:
        assert word in text


def test_e11_text_from_before_the_first_edit(box):
    box.put("f.py", "a = 1\nb = 2\n")
    box.ok("Read", file_path="f.py")
    box.ok("Edit", file_path="f.py", old_string="a = 1\nb = 2", new_string="a = 3\nb = 2")
    text = box.refused("Edit", file_path="f.py", old_string="a = 1\nb", new_string="x")
    assert "changed since you read it" in text
    box.put("f.py", "other\n")  # by a command, say
    text = box.refused("Edit", file_path="f.py", old_string="a = 3", new_string="x")
    assert "changed since you read it" in text
    text = box.refused("Edit", file_path="f.py", old_string="a = 1", new_string="x")
    assert "changed since you read it" in text


def test_e19_links_stay_links(box):
    box.put("real.txt", "one\n")
    (box.root / "link").symlink_to("real.txt")
    (box.root / "chain").symlink_to("link")
    box.ok("Edit", file_path="chain", old_string="one", new_string="two")
    assert (box.root / "chain").is_symlink() and (box.root / "link").is_symlink()
    assert box.get("real.txt") == b"two\n"
    box.ok("Write", file_path="link", content="three\n")
    assert (box.root / "link").is_symlink() and box.get("real.txt") == b"three\n"
    (box.root / "x").symlink_to("y")
    (box.root / "y").symlink_to("x")
    edit = {"old_string": "a", "new_string": "b"}
    for tool, more in (("Read", {}), ("Write", {"content": ""}), ("Edit", edit)):
        assert "symbolic links" in box.refused(tool, file_path="x", **more)


@pytest.mark.parametrize("through", ["settings.json", "folder/passwd", "chain", "missing"])
def test_a3_a_link_out_of_the_tree_is_not_followed(box, through):
    (box.root / "settings.json").symlink_to("/etc/passwd")
    (box.root / "chain").symlink_to("settings.json")
    (box.root / "folder").symlink_to("/etc")
    (box.root / "missing").symlink_to("/etc/not-there-yet")
    for tool, more in (
        ("Edit", {"old_string": "root", "new_string": "x"}),
        ("Write", {"content": "x"}),
        ("Read", {}),
    ):
        text = box.refused(tool, file_path=through, **more)
        assert text.startswith("PermissionError: ") and "outside" in text
        assert "root:" not in text  # nothing of what is behind it


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o644])
def test_e20_mode_is_kept(box, mode):
    path = box.put("run.sh", "echo 1\n", mode)
    box.ok("Edit", file_path="run.sh", old_string="1", new_string="2")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    box.ok("Write", file_path="run.sh", content="echo 3\n")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [p.name for p in box.root.iterdir()] == ["run.sh"]


def test_a_new_file_gets_an_ordinary_mode(box):
    box.ok("Write", file_path="new/deep/f.py", content="x\n")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((box.root / "new/deep/f.py").stat().st_mode) == 0o666 & ~umask


def test_write_counts_bytes_and_writes_what_was_asked(box):
    assert box.ok("Write", file_path="a.md", content="é  \n") == "Wrote a.md (5 bytes)."
    assert box.get("a.md") == "é  \n".encode()
    assert "is a directory" in box.refused("Write", file_path=".", content="")


def test_e22_a_literal_backslash_n_is_written_and_pointed_out(box):
    text = box.ok("Write", file_path="a.py", content="class A:\\n    x = 1")
    assert box.get("a.py") == b"class A:\\n    x = 1"
    assert "literal \\n" in text and "does not parse" in text
    assert "Warning" not in box.ok("Write", file_path="b.py", content='x = "a\\nb"')
    assert "Warning" not in box.ok("Write", file_path="b.txt", content="class A:\\n")


def test_binary_and_missing_files_are_refused(box):
    box.put("a.bin", b"\0\1")
    assert "binary, 2 bytes" in box.refused(
        "Edit", file_path="a.bin", old_string="a", new_string="b"
    )
    text = box.refused("Edit", file_path="no.py", old_string="a", new_string="b")
    assert text.startswith("FileNotFoundError: ")


def test_a_half_character_is_refused(box):
    box.put("a", "x")
    assert "surrogate" in box.refused("Edit", file_path="a", old_string="x", new_string="\ud800")
    assert "surrogate" in box.refused("Write", file_path="a", content="\udce9")


ALPHABET = [
    b"a",
    b"b",
    b"\n",
    b"\r\n",
    b"\r",
    b"\xe9",
    "é".encode(),
    b" ",
    b"\t",
    b"\\1",
    b"\xef\xbb\xbf",
]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=120
)
@given(
    pieces=st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=24),
    cut=st.tuples(st.integers(0, 24), st.integers(1, 4)),
    new=st.text(st.sampled_from("xyz\n\\$"), max_size=6),
    everywhere=st.booleans(),
)
def test_edit_moves_nothing_outside_the_match(box, pieces, cut, new, everywhere):
    data = b"".join(pieces)
    start, old = cut[0], b"".join(pieces[cut[0] : cut[0] + cut[1]])
    assume(old and start < len(pieces))
    try:
        given_old = old.decode()
    except UnicodeDecodeError:
        assume(False)
    wanted = given_old.replace("\r\n", "\n")
    assume(given_old != new and "\ufeff" not in wanted)
    path = box.put("f", data)
    text, error = box.call(
        "Edit", file_path="f", old_string=given_old, new_string=new, replace_all=everywhere
    )
    after = path.read_bytes()
    if error:
        assert after == data
        return
    # Model: tokens that keep CRLF whole; the match is over tokens with CRLF read as LF.
    bom = data.startswith(BOM)
    body = (data[3:] if bom else data).decode("utf-8", "surrogateescape")
    tokens = list(_tokens(body))
    plain = ["\n" if t == "\r\n" else t for t in tokens]
    done, k, count = [], 0, 0
    while k < len(tokens):
        if (everywhere or not count) and plain[k : k + len(wanted)] == list(wanted):
            done.append(None)
            k += len(wanted)
            count += 1
        else:
            done.append(tokens[k])
            k += 1
    assert f"({count} replacement" in text
    put_in = re.escape(new).replace("\\\n", "\r?\n")
    expected = "".join(put_in if t is None else re.escape(t) for t in done)
    assert after.startswith(BOM) >= bom
    rest = after[3:] if bom else after
    assert re.fullmatch(expected, rest.decode("utf-8", "surrogateescape"))


def _tokens(text):
    k = 0
    while k < len(text):
        step = 2 if text[k : k + 2] == "\r\n" else 1
        yield text[k : k + step]
        k += step
