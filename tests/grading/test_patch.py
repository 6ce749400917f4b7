"""Patches apply to a clean clone and give exactly the bytes of the change."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tadpole import process
from tadpole.errors import GraderError, UsageError
from tadpole.grading.patch import changes_of, git_patch, ignored
from tadpole.task import FileChange


def git(directory: Path, *arguments: str, stdin: bytes = b"") -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    options = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.autocrlf=false")
    done = process.run(["git", *options, *arguments], cwd=directory, env=env, stdin=stdin)
    assert done.ok, done.last_line()


def lay_out(repo: Path, files: dict[str, FileChange]) -> None:
    for file in files.values():
        path = repo / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)


def contents(repo: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        str(path.relative_to(repo)): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in repo.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def after(base: dict[str, FileChange], delta: list[FileChange]) -> dict[str, tuple[bytes, bool]]:
    files = {**base, **{change.path: change for change in delta}}
    return {f.path: (f.content, f.executable) for f in files.values() if f.content is not None}


def clone(tmp_path: Path, base: dict[str, FileChange]) -> Path:
    """A clean clone of a repository with these files."""
    origin, repo = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "-q")
    lay_out(origin, base)
    git(origin, "add", "-A", "-f")
    git(origin, "commit", "-q", "--allow-empty", "-m", "base")
    git(tmp_path, "clone", "-q", str(origin), str(repo))
    return repo


def files(*entries: FileChange) -> dict[str, FileChange]:
    return {entry.path: entry for entry in entries}


F = FileChange
ROWS = {
    "P1 edited, new, deleted": (
        files(F("a.py", b"x = 1\n"), F("gone.py", b"y\n"), F("same.py", b"z\n")),
        [F("a.py", b"x = 2\n"), F("new.py", b"n\n"), F("gone.py", None)],
    ),
    "P2 above blank lines at the end": (
        files(F("a.py", b"x = 1\n\n\n\n")),
        [F("a.py", b"x = 2\n\n\n\n")],
    ),
    "P3 CRLF": (files(F("a.txt", b"one\r\ntwo\r\n")), [F("a.txt", b"one\r\n2\r\n")]),
    "mixed line ends": (files(F("a", b"a\r\nb\nc\rd")), [F("a", b"a\r\nB\nc\rd\n")]),
    "P6 binary": (files(F("b", bytes(range(256)))), [F("b", bytes(range(255, -1, -1)))]),
    "P6 mode": (files(F("run.sh", b"x\n")), [F("run.sh", b"x\n", executable=True)]),
    "P6 mode, back and changed": (files(F("r", b"x\n", True)), [F("r", b"y\n")]),
    "P6 names": (
        files(F("with space", b"1"), F("caf\u00e9", b"1"), F('q"uo\\te', b"1")),
        [F("with space", b"2"), F("caf\u00e9", b"2"), F('q"uo\\te', b"2"), F("tab\tnl\n", b"")],
    ),
    "P6 rename": (files(F("old.py", b"x\n" * 20)), [F("old.py", None), F("new/n.py", b"x\n" * 20)]),
    "a name that is not UTF-8": ({}, [F("bad\udcff", b"x")]),
    "a directory in the place of a file": (files(F("a", b"1")), [F("a", None), F("a/b", b"2")]),
    "a file in the place of a directory": (files(F("a/b", b"1")), [F("a/b", None), F("a", b"2")]),
    "empty files": (files(F("was", b"")), [F("was", None), F("is", b"")]),
    "a line that looks like a patch": (files(F("a", b"x\n")), [F("a", b"--- a/a\n+++ b/a\n@@\n")]),
    "attributes of the repository": (
        files(F(".gitattributes", b"*.py -diff\n*.txt binary\n"), F("a.py", b"1\n")),
        [F("a.py", b"2\n"), F("b.txt", b"text\n")],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_patch_applies_and_gives_the_exact_bytes(tmp_path, name):
    base, delta = ROWS[name]
    lay_out(tmp_path, base)
    patch = git_patch(base, delta)
    git(tmp_path, "apply", "-", stdin=patch)
    assert contents(tmp_path) == after(base, delta)
    again = changes_of(patch, base.get)
    assert after(base, list(again)) == after(base, delta)
    assert git_patch(base, again) == patch


def test_a_patch_for_other_files_is_refused():
    patch = git_patch(files(F("a", b"1\n")), [F("a", b"2\n")])
    for base in (files(F("a", b"3\n")), {}):
        with pytest.raises(GraderError, match="apply"):
            changes_of(patch, base.get)
    assert changes_of(b"", {}.get) == ()


def test_patch_applies_to_a_clean_clone_and_its_index(tmp_path):
    base = {path: change for rows, _ in ROWS.values() for path, change in rows.items()}
    base.pop("a/b")
    delta = [F("a.py", b"x = 2\n\n\n"), F("b", None), F("run.sh", b"x\n", True), F("n", b"\0")]
    repo = clone(tmp_path, base)
    git(repo, "apply", "--index", "-", stdin=git_patch(base, delta))
    assert contents(repo) == after(base, delta)


def test_patch_is_in_standard_form_whatever_the_user_configured(monkeypatch, tmp_path):
    """P4."""
    (tmp_path / ".gitconfig").write_text(
        "[diff]\n noprefix = true\n mnemonicPrefix = true\n external = /bin/false\n"
        "[color]\n ui = always\n[core]\n autocrlf = true\n quotePath = false\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "diff.noprefix")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    base = files(F("a.py", b"x = 1\n"))
    lines = git_patch(base, [F("a.py", b"x = 2\n")]).splitlines()
    assert lines[0] == b"diff --git a/a.py b/a.py"
    assert lines[2:4] == [b"--- a/a.py", b"+++ b/a.py"]
    assert lines[-2:] == [b"-x = 1", b"+x = 2"]


def test_unchanged_and_unknown_files_give_an_empty_patch():
    base = files(F("a", b"1"))
    assert git_patch(base, []) == git_patch(base, [F("a", b"1"), F("none", None)]) == b""


def test_git_directories_are_left_out_and_odd_paths_refused():
    spellings = [".git", ".GIT", "git~1", ".git ", ".git.", ".git::$INDEX", ".g\u200cit"]
    evil = [F(f"sub/{name}/config", b"[core]\nfsmonitor = evil\n") for name in spellings]
    patch = git_patch({}, [*evil, F("sub/a", b"1"), F("sub/.gitkeep", b""), F("git~10", b"")])
    assert b"sub/.gitkeep" in patch and b"git~10" in patch
    assert b"fsmonitor" not in patch
    assert b"b/sub/a" in patch
    for path in ("../x", "/etc/passwd", "a//b", "./a", ""):
        with pytest.raises(UsageError):
            git_patch({}, [F(path, b"")])


def test_ignored_files_are_known():
    """P1: what git ignores; the rules are contents too, and no tree of the agent is touched."""
    rules = {".gitignore": b"*.log\nbuild/\n", "sub/.gitignore": b"!keep.log\n"}
    paths = ["x.log", "new.py", "build/lib/a.py", "sub/keep.log", "caf\u00e9 \n.log"]
    assert ignored(rules, paths) == {"x.log", "build/lib/a.py", "caf\u00e9 \n.log"}
    assert ignored({}, paths) == ignored(rules, []) == ignored(rules, ["a"]) == frozenset()


def test_names_that_mean_something_to_git_are_names():
    """A leading ":" is the magic of a pathspec, which ends git where it cannot be."""
    odd = [":!x", ":(bad)x", ":/x", "-x", "--stdin", "!x", "#x", "*.py", "[a]"]
    logs = [f"{name}.log" for name in odd] + [f":d/{name}.log" for name in odd if "/" not in name]
    assert ignored({".gitignore": b"*.log\n"}, [*odd, *logs]) == set(logs)
    assert git_patch({}, [F(name, b"1\n") for name in odd]).count(b"\n+1\n") == len(odd)


NAMES = st.sampled_from(["a", "b c", "d/e", "d/f", "\u00e9/\u00fc", 'x"y', "d/g/h"])
BYTES = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"a\n", b"b\r\n", b"\n", b"c", b"\x00"]), max_size=12).map(b"".join),
)


def tree(optional: bool):
    content = st.none() | BYTES if optional else BYTES
    return st.dictionaries(NAMES, st.tuples(content, st.booleans()), max_size=5).map(
        lambda found: {path: FileChange(path, *rest) for path, rest in found.items()}
    )


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(base=tree(False), delta=tree(True))
def test_any_change_comes_through(tmp_path_factory, base, delta):
    repo = tmp_path_factory.mktemp("any")
    lay_out(repo, base)
    patch = git_patch(base, list(delta.values()))
    if patch:
        git(repo, "apply", "-", stdin=patch)
    assert contents(repo) == after(base, list(delta.values()))
