"""Three real repositories, each with a bug that was put there, from the issue to the commit.

Everything is real but the words of the model: sources from the package index, git, boxes, the
projects' own test suites, the gate, a review at a terminal, apply.
"""

import asyncio
import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from making import VENV, census, git
from test_review import at_terminal
from test_verbs import COMMAND

from tadpole.errors import NetworkError
from tadpole.repos.pip import Pip
from tests.chat_server import Server, call, completion

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    project: str
    file: str
    right: str
    wrong: str
    issue: str
    test: str  # newly passing with the right patch
    command: str = ""  # empty: the whole suite, as the repository configures it


CASES = (
    Case(
        "boltons==26.2.0",
        "boltons/strutils.py",
        "range(min(range_limits), max(range_limits)+1)",
        "range(min(range_limits), max(range_limits))",
        "parse_int_list('5-8') leaves the 8 out",
        "tests/test_strutils.py::test_parse_int_list",
        "pytest tests/test_strutils.py tests/test_iterutils.py",
    ),
    Case(
        "toolz==1.2.0",
        "toolz/itertoolz.py",
        "itertools.islice(seq, 0, None, n)",
        "itertools.islice(seq, 1, None, n)",
        "take_nth skips the first element",
        "toolz/tests/test_itertoolz.py::test_take_nth",
        # Its settings make an error of a warning of that plugin.
        "pytest -p no:asyncio toolz/tests/test_itertoolz.py",
    ),
    Case(
        "cachetools==8.0.2",
        "src/cachetools/__init__.py",
        "key = next(iter(self.__order))\n        except StopIteration:\n"
        "            raise KeyError(\"%s is empty\" % type(self).__name__) from None\n"
        "        else:\n            value = Cache.__getitem__",
        "key = next(reversed(self.__order))\n        except StopIteration:\n"
        "            raise KeyError(\"%s is empty\" % type(self).__name__) from None\n"
        "        else:\n            value = Cache.__getitem__",
        "FIFOCache throws out the entry that came last",
        "tests/test_fifo.py::FIFOCacheTest::test_fifo",
    ),
)  # fmt: skip


def told(name: str, **arguments: object) -> dict:
    """A turn of the model with one call."""
    return completion("", "tool_calls", tool_calls=[call(name, json.dumps(arguments))])


def tadpole(repo: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *args], cwd=repo, capture_output=True, text=True, timeout=900, check=False
    )


def unpacked(case: Case, into: Path) -> Path:
    """The project's sources with the bug, as a git repository."""
    name = case.project.partition("==")[0]
    try:
        archive = asyncio.run(Pip().fetch(case.project, name, into))
    except NetworkError as error:
        pytest.skip(f"needs the package index: {error}")
    with tarfile.open(archive) as packed:
        packed.extractall(into / "sources", filter="data")
    (root,) = (into / "sources").iterdir()
    file = root / case.file
    text = file.read_text()
    assert text.count(case.right) >= 1
    file.write_text(text.replace(case.right, case.wrong, 1))
    git(root, "init", "-q", "-b", "main")
    for key, value in (("user.name", "Somebody"), ("user.email", "somebody@example.org")):
        git(root, "config", key, value)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", f"{case.project}, with a bug")
    return root


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = Server()
    monkeypatch.setenv("OPENAI_BASE_URL", made.url)
    monkeypatch.setenv("TADPOLE_CACHE", str(tmp_path / "cache"))
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.parametrize("case", CASES, ids=[case.project for case in CASES])
def test_from_an_issue_of_a_real_project_to_the_commit(case: Case, tmp_path: Path, server: Server):
    (tmp_path / "fetched").mkdir()
    root = unpacked(case, tmp_path / "fetched")
    fix = {"file_path": case.file, "old_string": case.wrong, "new_string": case.right}
    test = f"python -m pytest -q -p no:cacheprovider {case.test}"
    done = completion("Fixed, and the test passes.")
    broken = told("Write", file_path=case.file, content="raise SystemExit('no')\n")
    look = told("Bash", command=f"grep -rn '{case.wrong.splitlines()[0]}' . | head -3")
    server.script = [
        *(broken, done),  # the first attempt breaks everything
        *(look, told("Read", file_path=case.file), told("Edit", **fix), told("Bash", command=test)),
        done,  # the second goes a long way
        told("Edit", **fix),
        done,  # the third is short
    ]
    before = census(root)
    asked = ["solve", case.issue, "--model", "openai:scripted", "--venv", str(VENV), "--json"]
    asked += ["-n", "3", "--run.concurrency", "1", "--non-interactive"]
    solved = tadpole(root, *asked, *(("--test", case.command) if case.command else ()))
    assert solved.returncode == 1, solved.stderr
    assert census(root) == before
    result = json.loads(solved.stdout.splitlines()[-1])
    rows = [(row["number"], row["verdict"]) for row in result["attempts"]]
    assert rows == [(2, "pass"), (1, "pass"), (0, "block")], solved.stderr
    name = Path(result["proposal"]).name
    passport = json.loads(tadpole(root, "review", name, "--json").stdout)
    assert case.test in passport["gate"]["tests"]["newly_passing"]
    assert passport["gate"]["tests"]["newly_failing"] == []
    assert passport["gate"]["tests"]["before_passed"] > 10
    assert passport["sandbox"]["engine"] in ("session", "flat", "container")
    refused = tadpole(root, "apply", result["attempts"][-1]["proposal"])
    assert refused.returncode == 2 and "is blocked (newly_failing" in refused.stderr
    assert "nobody has reviewed" in tadpole(root, "apply", name).stderr
    code, shown = at_terminal(root, "a\n", "review", name)
    assert code == 0, shown
    assert case.test in shown and "+1 -1" in shown
    applied = tadpole(root, "apply", name, "--branch", "fix/issue")
    assert applied.returncode == 0, applied.stderr
    log = git(root, "log", "--format=%an: %s%n%b", "main..fix/issue")
    assert log.startswith(f"Somebody: {case.issue}\nTadpole-Passport: {name}\nReviewed-by: ")
    assert case.right in git(root, "show", f"fix/issue:{case.file}")
    assert git(root, "diff", "--name-only", "main", "fix/issue") == case.file
    assert git(root, "status", "--porcelain") == ""
