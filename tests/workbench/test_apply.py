"""Writing an approved proposal into a repository, and everything for which that is refused."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from making import BUGGY, FIXED, REPORT, census, edit, git, proposed, put

from tadpole.errors import RunError, UsageError
from tadpole.workbench import apply
from tadpole.workbench.base import read_base
from tadpole.workbench.finding import Check, Finding, Severity
from tadpole.workbench.gate import Verdict
from tadpole.workbench.key import SigningKey
from tadpole.workbench.passport import Ruling
from tadpole.workbench.places import config_dir
from tadpole.workbench.proposal import Proposal, load
from tadpole.workbench.review import decide
from tadpole.workbench.usergit import UserGit

WHEN = "1700000000 +0000"


def approved(repo: Path, files: dict, *, dirty: bool = False, runs=()) -> Proposal:
    change = edit(read_base(UserGit(repo), dirty=dirty), files, runs)
    made = proposed(repo, change, dirty=dirty)
    return ruled(made, Ruling.APPROVED)


def ruled(made: Proposal, ruling: Ruling, reason: str = "") -> Proposal:
    key = SigningKey.open(config_dir())
    decide(made, key, ruling, "somebody", reason)
    return load(made.directory, key)


def test_the_work_tree_gets_the_bytes_that_were_approved(repo: Path):
    index = (repo / ".git" / "index").read_bytes()
    made = approved(
        repo,
        {"calc.py": FIXED, "README.md": None, "pkg/new.py": b"x\r\n\xff", "run.sh": "#!/bin/sh\n"},
        runs=("run.sh",),
    )
    paths = apply.to_work_tree(made, UserGit(repo))
    assert paths == ["README.md", "calc.py", "pkg/new.py", "run.sh"]
    assert (repo / "calc.py").read_text() == FIXED
    assert (repo / "pkg/new.py").read_bytes() == b"x\r\n\xff"
    assert not (repo / "README.md").exists()
    assert os.access(repo / "run.sh", os.X_OK) and not os.access(repo / "calc.py", os.X_OK)
    assert (repo / ".git" / "index").read_bytes() == index
    assert not list(repo.rglob(".tadpole-*"))
    there = census(repo)
    for way in (apply.to_work_tree, lambda p, g: apply.to_branch(p, g, "b", WHEN)):
        with pytest.raises(UsageError, match=f"{made.id} is in the work tree already"):
            way(made, UserGit(repo))
    assert census(repo) == there


def test_a_branch_gets_one_commit_that_names_the_passport(repo: Path):
    put(repo, {"other.txt": "not committed\n"})
    before = census(repo)
    made = approved(repo, {"calc.py": FIXED, "README.md": None, "pkg/new.py": "x\n"})
    commit = apply.to_branch(made, UserGit(repo), "fix/add", WHEN)
    assert git(repo, "rev-parse", "fix/add") == commit
    assert git(repo, "rev-parse", "fix/add^") == git(repo, "rev-parse", "HEAD")
    log = git(repo, "log", "-1", "--format=%an <%ae>%n%B", "fix/add")
    assert log.startswith("Somebody <somebody@example.org>\nadd() is wrong\n")
    trailers = git(repo, "log", "-1", "--format=%(trailers:key=Tadpole-Passport,valueonly)", commit)
    assert trailers == made.id
    changed = git(repo, "show", "--name-status", "--format=", "fix/add").splitlines()
    assert changed == ["D\tREADME.md", "M\tcalc.py", "A\tpkg/new.py"]
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/main"
    after = census(repo)
    assert {p: v for p, v in after.items() if not p.startswith(".git/")} == {
        p: v for p, v in before.items() if not p.startswith(".git/")
    }
    assert after[".git/index"] == before[".git/index"]
    with pytest.raises(UsageError, match="is there already"):
        apply.to_branch(made, UserGit(repo), "fix/add", WHEN)
    for name in ("a..b", "-x", "HEAD", "a b", ""):
        with pytest.raises(UsageError, match="cannot be a branch"):
            apply.to_branch(made, UserGit(repo), name, WHEN)


def test_nothing_is_applied_without_an_approval(repo: Path):
    change = edit(read_base(UserGit(repo), dirty=False), {"calc.py": FIXED})
    made = proposed(repo, change)
    with pytest.raises(UsageError, match=f"nobody has reviewed {made.id}"):
        apply.to_work_tree(made, UserGit(repo))
    rejected = ruled(made, Ruling.REJECTED, "not so")
    with pytest.raises(UsageError, match="not approved but rejected: not so"):
        apply.to_branch(rejected, UserGit(repo), "b", WHEN)
    assert (repo / "calc.py").read_text() == BUGGY


def test_what_blocks_can_be_neither_approved_nor_applied(repo: Path):
    finding = Finding(check=Check.SECRET, severity=Severity.HIGH, message="a key")
    report = REPORT.model_copy(update={"verdict": Verdict.BLOCK, "blocks": (finding,)})
    change = edit(read_base(UserGit(repo), dirty=False), {"calc.py": FIXED})
    made = proposed(repo, change, report=report)
    with pytest.raises(UsageError, match="cannot be approved"):
        ruled(made, Ruling.APPROVED)
    with pytest.raises(UsageError, match="blocked \\(secret: a key\\)"):
        apply.to_work_tree(made, UserGit(repo))


@pytest.mark.parametrize(
    ("move", "told"),
    [
        (
            lambda r: (put(r, {"x": "y"}), git(r, "add", "x"), git(r, "commit", "-qm", "x")),
            "HEAD was",
        ),
        (lambda r: put(r, {"calc.py": BUGGY + "\n"}), r"calc\.py has another content"),
        (lambda r: (r / "calc.py").unlink(), r"calc\.py is gone"),
        (lambda r: (r / "calc.py").chmod(0o755), r"calc\.py has another mode"),
        (lambda r: put(r, {"new.py": "taken\n"}), r"new\.py is there by now"),
    ],
)
def test_what_moved_is_named_and_a_new_validation_offered(repo: Path, move, told: str):
    made = approved(repo, {"calc.py": FIXED, "new.py": "n\n"})
    move(repo)
    before = census(repo)
    for way in (apply.to_work_tree, lambda p, g: apply.to_branch(p, g, "b", WHEN)):
        with pytest.raises(UsageError, match=f"{told}.*tadpole review {made.id} --revalidate"):
            way(made, UserGit(repo))
    assert census(repo) == before


def test_all_or_nothing_and_nothing_through_a_link(repo: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    files = {"README.md": None, "aaa/bbb/x.py": "x\n", "calc.py": FIXED, "lib/new.py": "x\n"}
    made = approved(repo, files)
    (repo / "lib").symlink_to(outside)
    (repo / "README.md").chmod(0o640)  # what was removed comes back as it was
    before = census(repo)
    with pytest.raises(UsageError, match="lib is no plain directory"):
        apply.to_work_tree(made, UserGit(repo))
    assert census(repo) == before and not (repo / "aaa").exists()
    assert list(outside.iterdir()) == []
    (repo / "lib").unlink()
    (repo / "calc.py").rename(outside / "calc.py")
    (repo / "calc.py").symlink_to(outside / "calc.py")
    with pytest.raises(UsageError, match=r"calc\.py is a link now"):
        apply.to_work_tree(made, UserGit(repo))
    assert (outside / "calc.py").read_text() == BUGGY


def test_a_file_takes_the_place_of_a_directory_and_the_other_way_round(repo: Path):
    made = approved(repo, {"tests/test_calc.py": None, "tests": "a file\n", "calc.py": None,
                           "calc.py/inner.py": "x\n"})  # fmt: skip
    apply.to_work_tree(made, UserGit(repo))
    assert (repo / "tests").read_text() == "a file\n"
    assert (repo / "calc.py" / "inner.py").read_text() == "x\n"
    git(repo, "stash", "-u", "-q")
    apply.to_branch(made, UserGit(repo), "b", WHEN)
    assert git(repo, "show", "b:calc.py/inner.py") == "x"


def test_changes_that_were_not_committed_are_no_parent(repo: Path):
    put(repo, {"calc.py": "# mine\n" + BUGGY})
    made = approved(repo, {"calc.py": "# mine\n" + FIXED}, dirty=True)
    with pytest.raises(UsageError, match="not committed"):
        apply.to_branch(made, UserGit(repo), "b", WHEN)
    apply.to_work_tree(made, UserGit(repo))
    assert (repo / "calc.py").read_text() == "# mine\n" + FIXED


def test_a_branch_would_lack_what_was_not_committed_in_any_file(repo: Path):
    put(repo, {"helper.py": "ONE = 1\n"})  # the change does not touch it, and needs it
    needs = {"calc.py": FIXED + "\n\nfrom helper import ONE\n"}
    made = approved(repo, needs, dirty=True)
    before = census(repo)
    with pytest.raises(UsageError, match="not committed, which a branch would lack: commit them"):
        apply.to_branch(made, UserGit(repo), "b", WHEN)
    assert census(repo) == before
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "mine")
    made = approved(repo, needs, dirty=True)  # by now the work tree is what is committed
    apply.to_branch(made, UserGit(repo), "b", WHEN)
    assert git(repo, "show", "b:helper.py") == "ONE = 1"


@pytest.mark.parametrize("name", ["change.json", "patch.diff", "passport.json"])
def test_a_proposal_that_was_changed_does_not_verify(repo: Path, name: str):
    made = approved(repo, {"calc.py": FIXED})
    file = made.directory / name
    text = file.read_bytes()
    key = SigningKey.open(config_dir())
    changed = text.replace(b"somebody", b"nobodyxx")
    file.write_bytes(changed if name == "passport.json" else text + b" ")
    with pytest.raises(UsageError, match=r"does not verify|not what its passport"):
        load(made.directory, key)
    file.write_bytes(text)
    load(made.directory, key)
    with pytest.raises(UsageError, match="does not verify"):
        load(made.directory, SigningKey(b"x" * 32))


def test_a_passport_of_another_version_is_refused(repo: Path):
    made = approved(repo, {"calc.py": FIXED})
    file = made.directory / "passport.json"
    file.write_bytes(file.read_bytes().replace(b'"format": 2', b'"format": 9', 1))
    with pytest.raises(RunError, match="has format 9"):
        load(made.directory, SigningKey.open(config_dir()))


def test_the_key_is_the_persons_alone(tmp_path: Path):
    key = SigningKey.open(tmp_path / "c")
    file = tmp_path / "c" / "passport.key"
    assert file.stat().st_mode & 0o777 == 0o600 and len(file.read_bytes()) == 32
    assert SigningKey.open(tmp_path / "c").verifies(b"x", key.sign(b"x"))
    assert not SigningKey.open(tmp_path / "d").verifies(b"x", key.sign(b"x"))
    file.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        SigningKey.open(tmp_path / "c")


def other_state(repo: Path, scratch: Path, state: str) -> Path:
    """A repository as a person may have left it."""
    if state == "sha256":
        shutil.rmtree(repo / ".git")
        git(repo, "init", "-q", "-b", "main", "--object-format=sha256")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "all")
    elif state == "detached":
        git(repo, "checkout", "-q", "--detach")
    elif state == "shallow":
        put(repo, {"new.txt": "n\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "second")
        git(scratch, "clone", "-q", "--depth", "1", repo.as_uri(), "shallow")
        return scratch / "shallow"
    elif state == "worktree":
        git(repo, "worktree", "add", "-q", "-b", "side", str(scratch / "side"))
        return scratch / "side"
    else:  # in the middle of a merge, or of a rebase, of another file
        git(repo, "checkout", "-q", "-b", "other")
        put(repo, {"README.md": "theirs\n"})
        git(repo, "commit", "-aqm", "theirs")
        git(repo, "checkout", "-q", "main")
        put(repo, {"README.md": "ours\n"})
        git(repo, "commit", "-aqm", "ours")
        with pytest.raises(subprocess.CalledProcessError):
            git(repo, state, "other")
    return repo


@pytest.mark.parametrize("state", ["sha256", "detached", "shallow", "worktree", "merge", "rebase"])
def test_a_repository_in_any_state(repo: Path, tmp_path: Path, state: str):
    place = other_state(repo, tmp_path, state)
    git(repo, "config", "user.name", "Somebody")
    git(repo, "config", "user.email", "somebody@example.org")
    git(place, "config", "user.name", "Somebody")
    git(place, "config", "user.email", "somebody@example.org")
    before, head = git(place, "status", "--porcelain=v2"), git(place, "rev-parse", "HEAD")
    made = approved(place, {"calc.py": FIXED})
    commit = apply.to_branch(made, UserGit(place), "fix/add", WHEN)
    assert git(place, "show", "fix/add:calc.py") == FIXED.strip()
    assert git(place, "rev-parse", "fix/add^") == head and len(commit) == len(head)
    assert git(place, "status", "--porcelain=v2") == before
    apply.to_work_tree(made, UserGit(place))
    assert (place / "calc.py").read_text() == FIXED
    assert git(place, "rev-parse", "HEAD") == head
