"""Reading a person's repository: what is read, and that nothing of it runs or changes."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from making import BUGGY, census, edit, git, put

from tadpole.errors import SourceError, UsageError
from tadpole.workbench.base import read_base, write_tree
from tadpole.workbench.environment import Environment, find, recipe_of
from tadpole.workbench.usergit import UserGit


def test_head_is_read_as_committed_and_the_work_tree_as_it_lies_there(repo: Path):
    put(repo, {".gitignore": "*.log\n", "calc.py": "dirty\n", "new.py": "n\n", "x.log": "x\n"})
    (repo / "README.md").unlink()
    before = census(repo)
    head = read_base(UserGit(repo), dirty=False)
    assert set(head.files) == {"calc.py", "tests/test_calc.py", "README.md"}
    assert head.files["calc.py"].content == BUGGY.encode()
    dirty = read_base(UserGit(repo / "tests"), dirty=True)
    assert set(dirty.files) == {".gitignore", "calc.py", "new.py", "tests/test_calc.py"}
    assert dirty.files["calc.py"].content == b"dirty\n"
    assert head.digest != dirty.digest and head.commit == dirty.commit
    assert read_base(UserGit(repo), dirty=False).digest == head.digest
    assert census(repo) == before


def trap(place: Path, mark: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\ntouch '{mark}'\ncat\n")
    place.chmod(0o755)
    return place


def test_no_program_that_the_repository_names_is_started(repo: Path, tmp_path: Path):
    mark = tmp_path / "ran"
    evil = trap(tmp_path / "evil.sh", mark)
    put(repo, {".gitattributes": "* filter=x diff=x\n", "a.txt": "a\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "attributes")
    for key in ("core.fsmonitor", "core.pager", "diff.external", "core.sshCommand",
                "filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv",
                "gpg.program", "core.editor", "credential.helper", "core.askPass"):  # fmt: skip
        git(repo, "config", key, str(evil))
    git(repo, "config", "filter.x.required", "true")
    git(repo, "config", "core.hooksPath", str(repo / "hooks"))
    git(repo, "config", "commit.gpgSign", "true")
    for event in ("post-index-change", "reference-transaction"):  # git has these since 2.54
        git(repo, "config", f"hook.its=own.{event}.event", event)
        git(repo, "config", f"hook.its=own.{event}.command", str(evil))
    for hook in ("pre-commit", "post-index-change", "reference-transaction", "post-checkout"):
        trap(repo / "hooks" / hook, mark)
    # The traps work: git as a person calls it does run them.
    subprocess.run(["git", "-C", str(repo), "status"], capture_output=True, check=False)
    assert mark.exists()
    mark.unlink()
    put(repo, {"calc.py": "changed\n"})
    user = UserGit(repo)
    assert read_base(user, dirty=False).files["a.txt"].content == b"a\n"
    assert read_base(user, dirty=True).files["calc.py"].content == b"changed\n"
    user.person()
    blob = user.write_blob(b"new\n")
    tree = user.write_tree(user.head(), [("100644", blob, "n.py")], tmp_path / "index")
    from tadpole.workbench.usergit import Person

    made = user.commit(tree, user.head(), "m\n", Person("S", "s@example.org"), "1700000000 +0000")
    user.create_branch("made", made)
    assert not mark.exists()
    # As every git that is started here sees them, also one that is too old to run them.
    for event in ("post-index-change", "reference-transaction"):
        seen = user._git("config", "--get", f"hook.its=own.{event}.enabled")
        assert seen.stdout == b"false\n"
    assert git(repo, "-c", "core.hooksPath=/dev/null", "cat-file", "-p", "made:n.py") == "new"


def hostile_commit(repo: Path, path: str, mode: str = "100644") -> None:
    """A commit whose tree no git would make: written by hand."""
    blob = subprocess.run(["git", "-C", str(repo), "hash-object", "-w", "--stdin"], input=b"evil\n",
                          capture_output=True, check=True).stdout.decode().strip()  # fmt: skip
    entry = f"{mode} {path}\0".encode() + bytes.fromhex(blob)
    tree = subprocess.run(
        ["git", "-C", str(repo), "hash-object", "-w", "-t", "tree", "--literally", "--stdin"],
        input=entry, capture_output=True, check=True,
    ).stdout.decode().strip()  # fmt: skip
    commit = git(repo, "commit-tree", tree, "-m", "evil")
    git(repo, "update-ref", "HEAD", commit)


@pytest.mark.parametrize("path", ["..", ".git", ".GIT", "."])
def test_a_commit_with_a_path_that_leads_elsewhere_is_refused(repo: Path, path: str):
    hostile_commit(repo, path)
    with pytest.raises(SourceError, match="do not work on this repository"):
        read_base(UserGit(repo), dirty=False)


async def test_links_stay_links_and_none_is_followed_here(repo: Path, tmp_path: Path):
    secret = tmp_path / "key"
    secret.write_text("very secret\n")
    (repo / "settings.json").symlink_to(secret)
    (repo / "up").symlink_to("../../..")
    (repo / "here").symlink_to("calc.py")
    (repo / "dir").symlink_to("tests")
    git(repo, "add", "settings.json", "up", "here", "dir")
    git(repo, "commit", "-qm", "links")
    (repo / "README.md").unlink()
    os.mkfifo(repo / "README.md")  # tracked as a file
    for dirty in (False, True):
        base = read_base(UserGit(repo), dirty=dirty)
        assert base.links == {"settings.json": str(secret), "up": "../../..", "here": "calc.py",
                              "dir": "tests"}  # fmt: skip
        assert base.leading_out() == ["settings.json", "up"]
        assert not any(b"very secret" in (f.content or b"") for f in base.files.values())
        place = tmp_path / f"tree{dirty}"
        await write_tree(base, place)
        assert (place / "settings.json").readlink() == secret
    assert any("README.md" in note for note in base.notes)


async def test_odd_names_and_modes_survive(repo: Path, tmp_path: Path):
    put(repo, {"a\nb.txt": "n\n", "\x1b[31m.txt": "e\n", "run.sh": "#!/bin/sh\n", "é ü.py": "x\n"})
    (repo / "run.sh").chmod(0o755)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "odd")
    base = read_base(UserGit(repo), dirty=False)
    assert {"a\nb.txt", "\x1b[31m.txt", "é ü.py"} <= set(base.files)
    assert base.files["run.sh"].executable
    assert base.digest == read_base(UserGit(repo), dirty=True).digest
    await write_tree(base, tmp_path / "tree")
    assert (tmp_path / "tree" / "a\nb.txt").read_text() == "n\n"
    assert (tmp_path / "tree" / "run.sh").stat().st_mode & stat.S_IXUSR


def test_submodules_are_told_and_left_out(repo: Path, tmp_path: Path):
    oid = git(repo, "rev-parse", "HEAD")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{oid},sub")
    git(repo, "commit", "-qm", "sub")
    assert read_base(UserGit(repo), dirty=False).notes == ("submodule sub left out",)


def test_a_repository_inside_is_told_and_left_out(repo: Path):
    put(repo, {"vendor/inner/a.py": "a = 1\n", "vendor/b.py": "b = 1\n"})
    git(repo / "vendor/inner", "init", "-q")
    git(repo / "vendor/inner", "add", "-A")
    git(repo / "vendor/inner", "commit", "-qm", "inner")
    base = read_base(UserGit(repo), dirty=True)
    assert base.notes == ("'vendor/inner/' left out: a repository of its own",)
    assert "vendor/b.py" in base.files and "vendor/inner/a.py" not in base.files


def test_what_is_no_repository_is_one_clear_line(tmp_path: Path, repo: Path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(SourceError, match="in no git repository"):
        UserGit(tmp_path / "plain")
    for none in (repo / "tset", repo / "calc.py"):  # not the repository around it
        with pytest.raises(SourceError, match="is no directory"):
            UserGit(none)
    git(tmp_path / "plain", "init", "-q", "-b", "trunk")
    with pytest.raises(SourceError, match=r"branch trunk of .* has no commit yet"):
        read_base(UserGit(tmp_path / "plain"), dirty=False)
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare")
    for place in (tmp_path / "bare", tmp_path / "bare" / "refs"):
        with pytest.raises(SourceError, match=r"bare is a bare repository, .*: git clone it"):
            UserGit(place)
    assert UserGit(repo / ".git" / "refs").root == repo


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda g: (g / "HEAD").write_text("garbage\n"), "cannot read .* see what git status says"),
        (lambda g: (g / "HEAD").unlink(), "cannot read .* see what git status says"),
        (lambda g: (g / "config").write_text("[broken\n"), "cannot read .*bad config line"),
        (lambda g: (g / "refs/heads/main").write_text("zz\n"), "cannot be read: git fsck"),
        (lambda g: shutil.rmtree(g / "objects") or (g / "objects").mkdir(), "read: git fsck says"),
        (
            lambda g: (g / "HEAD").write_text("ref: refs/heads/none\n"),
            "branch none of .* no commit",
        ),
    ],
    ids=["garbage", "no-head", "config", "ref", "objects", "unborn"],
)
def test_a_damaged_repository_is_not_taken_for_an_empty_one(repo: Path, damage, told: str):
    damage(repo / ".git")
    with pytest.raises(SourceError, match=told) as error:
        UserGit(repo).head()
    assert "\n" not in str(error.value)


def test_the_environment_is_the_given_the_active_or_the_repositorys(repo: Path, tmp_path: Path):
    def venv(place: Path) -> Path:
        put(place, {"pyvenv.cfg": "home = /usr/bin\n"})
        return place

    assert find(repo, None, {}).venv is None
    mine = venv(repo / ".venv")
    assert find(repo, None, {}).venv == mine
    active = venv(tmp_path / "active")
    assert find(repo, None, {"VIRTUAL_ENV": str(active)}).venv == active
    assert find(repo, mine, {"VIRTUAL_ENV": str(active)}).venv == mine
    with pytest.raises(UsageError, match="no virtual environment"):
        find(repo, tmp_path / "none", {})


async def test_a_tree_that_no_git_makes_is_refused(repo: Path, tmp_path: Path):
    """A file that is also a directory, and a name that no file system takes."""
    tree, blob = (git(repo, "rev-parse", f"HEAD{part}") for part in ("^{tree}", ":calc.py"))
    both = b"100644 a\0" + bytes.fromhex(blob) + b"40000 a\0" + bytes.fromhex(tree)
    argv = ["git", "-C", str(repo), "hash-object", "-w", "-t", "tree", "--literally", "--stdin"]
    made = subprocess.run(argv, input=both, capture_output=True, check=True).stdout.decode().strip()
    git(repo, "update-ref", "HEAD", git(repo, "commit-tree", made, "-m", "evil"))
    with pytest.raises(SourceError, match="'a' as a file and as a directory"):
        read_base(UserGit(repo), dirty=False)
    hostile_commit(repo, "x" * 300)
    with pytest.raises(SourceError, match="too long to be written"):
        await write_tree(read_base(UserGit(repo), dirty=False), tmp_path / "tree")


@pytest.mark.parametrize("where", ["file", "setting"])
def test_what_a_person_ignores_everywhere_is_not_read(
    repo: Path, own_directories: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    monkeypatch.setenv("HOME", str(own_directories))
    ignored = own_directories / ("config/git/ignore" if where == "file" else "mine")
    put(own_directories, {str(ignored.relative_to(own_directories)): "*.key\n"})
    if where == "setting":
        git(repo, "config", "core.excludesFile", "~/mine")
    put(repo, {"my.key": "very secret\n", "new.py": "n\n"})
    base = read_base(UserGit(repo), dirty=True)
    assert "new.py" in base.files and "my.key" not in base.files


def test_a_work_tree_of_gibibytes_is_refused_before_it_is_read(repo: Path):
    for number in range(9):
        with (repo / f"data{number}").open("wb") as stream:
            stream.truncate(255 << 20)
    with pytest.raises(SourceError, match=r"holds 2\.2 GiB that git does not ignore"):
        read_base(UserGit(repo), dirty=True)


def test_an_environment_that_leads_back_to_the_repository_is_none(repo: Path):
    """A box would show all of it, with what git ignores."""
    put(repo, {"pyvenv.cfg": "home = /usr/bin\n"})
    (repo / ".venv").symlink_to(".")
    assert find(repo, None, {}).venv is None


def test_a_second_work_tree_is_a_repository_too(repo: Path, tmp_path: Path):
    git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    put(tmp_path / "side", {"calc.py": "side\n"})
    user = UserGit(tmp_path / "side" / "tests")
    assert user.root == tmp_path / "side" and user.branch() == "side"
    assert read_base(user, dirty=True).files["calc.py"].content == b"side\n"
    assert read_base(user, dirty=False).digest == read_base(UserGit(repo), dirty=True).digest


def test_what_the_repository_ignores_is_no_part_of_a_change(repo: Path):
    put(repo, {".gitignore": "*.log\n/out/\n", "kept.log": "k\n"})
    git(repo, "add", "-f", "-A")
    git(repo, "commit", "-qm", "rules")
    base = read_base(UserGit(repo), dirty=False)
    change = edit(base, {"x.log": "x\n", "out/a": "a\n", "kept.log": "changed\n", "new.py": "n\n",
                         "README.md": None, ".gitignore": "new.py\n"})  # fmt: skip
    assert [f.path for f in change.files] == [".gitignore", "README.md", "kept.log", "new.py"]


def test_plugins_that_come_between_tests_and_reporter_are_known(repo: Path, tmp_path: Path):
    for name in ("pytest_xdist-3.6.1", "pytest_cov-5.0", "hypothesis-6.1", "requests-2.0"):
        put(tmp_path, {f"venv/lib/python3.11/site-packages/{name}.dist-info/METADATA": "x"})
    environment = Environment(tmp_path / "venv", "as given")
    assert "requests" in environment.installed()
    base = read_base(UserGit(repo), dirty=False)
    assert recipe_of(base, environment).requirements == ("pytest-cov", "pytest-xdist")
    put(repo, {"tests/test_h.py": "import hypothesis\n"})
    base = read_base(UserGit(repo), dirty=True)
    assert "hypothesis" in recipe_of(base, environment).requirements
    assert recipe_of(base, Environment(None, "none")).requirements == ()
