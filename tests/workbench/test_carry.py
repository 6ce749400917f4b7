"""A proposal and a repository that moved on: carried over where both fit, refused where not."""

from pathlib import Path

import pytest
from making import BUGGY, FIXED, edit, git, proposed, put
from test_review import at_terminal

from tadpole.errors import UsageError
from tadpole.workbench.base import Base, read_base
from tadpole.workbench.carry import carried
from tadpole.workbench.key import SigningKey
from tadpole.workbench.passport import Ruling
from tadpole.workbench.places import config_dir
from tadpole.workbench.review import decide
from tadpole.workbench.usergit import UserGit


def now(repo: Path, files: dict | None = None, gone: tuple[str, ...] = ()) -> Base:
    put(repo, files or {})
    for path in gone:
        (repo / path).unlink()
    return read_base(UserGit(repo), dirty=True)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_both_sides_are_kept_to_the_byte(repo: Path, ending: bytes):
    old, new = (text.encode().replace(b"\n", ending) for text in (BUGGY, FIXED))
    base = now(repo, {"calc.py": old})
    change = edit(base, {"calc.py": new, "README.md": None, "new.py": "n\n"})
    theirs = old + b"# caf\xe9" + ending
    moved = now(repo, {"calc.py": theirs, "other.py": "o\n"})
    found = carried(change, moved)
    delta = {file.path: file.content for file in found.delta}
    assert delta == {"README.md": None, "new.py": b"n\n", "calc.py": new + b"# caf\xe9" + ending}
    assert found.base == moved.digest and found.id != change.id
    assert b"+++ b/calc.py\n" in found.patch()


def test_a_change_of_mode_is_kept_beside_theirs(repo: Path):
    base = now(repo)
    change = edit(base, {"calc.py": FIXED}, ("calc.py",))
    found = carried(change, now(repo, {"calc.py": BUGGY + "# more\n"}))
    assert found.delta[0].executable and found.delta[0].content == f"{FIXED}# more\n".encode()


@pytest.mark.parametrize(
    ("changed", "moved"),
    [
        ({"calc.py": FIXED}, {"calc.py": BUGGY.replace("a - b", "a * b")}),
        ({"calc.py": None}, {"calc.py": BUGGY + "# more\n"}),
        ({"new.py": "n\n"}, {"new.py": "theirs\n"}),
        ({"calc.py": b"\0\x01"}, {"calc.py": BUGGY + "# more\n"}),
    ],
    ids=["lines", "deleted", "new", "binary"],
)
def test_what_overlaps_is_refused_by_name(repo: Path, changed: dict, moved: dict):
    change = edit(now(repo), changed)
    with pytest.raises(UsageError, match=r"(calc|new)\.py changed in the same place.*solve it"):
        carried(change, now(repo, moved))


def test_what_is_there_already_is_no_part_of_it(repo: Path):
    change = edit(now(repo), {"calc.py": FIXED, "README.md": None})
    left = carried(change, now(repo, {"calc.py": FIXED}))
    assert [file.path for file in left.files] == ["README.md"]
    with pytest.raises(UsageError, match="in the repository already"):
        carried(change, now(repo, gone=("README.md",)))


@pytest.mark.slow
def test_at_a_terminal_apply_offers_to_judge_what_moved_anew(repo: Path):
    made = proposed(repo, edit(read_base(UserGit(repo), dirty=False), {"calc.py": FIXED}))
    decide(made, SigningKey.open(config_dir()), Ruling.APPROVED, "somebody", "")
    put(repo, {"calc.py": f"# mine\n{BUGGY}"})
    git(repo, "commit", "-aqm", "moved on")
    code, said = at_terminal(repo, "n\n", "apply", made.id)
    assert code == 2 and "calc.py has another content" in said
    # The tests cannot run without pytest, so it is shown as blocked, and is not applied.
    code, said = at_terminal(repo, "y\nq\n", "apply", made.id)
    assert code == 1 and "Judge it anew" in said and "# mine" in said, said
    assert (repo / "calc.py").read_text() == f"# mine\n{BUGGY}"


@pytest.mark.slow
@pytest.mark.parametrize("branch", [(), ("--branch", "fix")], ids=["work tree", "branch"])
def test_what_is_judged_anew_and_approved_is_applied(repo: Path, branch: tuple[str, ...]):
    put(repo, {".tadpole.toml": "[tests]\ncommand = 'true'\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "policy")
    made = proposed(repo, edit(read_base(UserGit(repo), dirty=False), {"calc.py": FIXED}))
    decide(made, SigningKey.open(config_dir()), Ruling.APPROVED, "somebody", "")
    put(repo, {"calc.py": f"# mine\n{BUGGY}"})
    git(repo, "commit", "-aqm", "moved on")
    code, said = at_terminal(repo, "y\na\n", "apply", made.id, *branch)
    assert code == 0 and "next: tadpole apply" not in said, said
    wanted = f"# mine\n{FIXED}"
    if branch:
        assert git(repo, "show", "fix:calc.py") == wanted.strip()
        assert (repo / "calc.py").read_text() == f"# mine\n{BUGGY}"
    else:
        assert "wrote calc.py" in said and (repo / "calc.py").read_text() == wanted
