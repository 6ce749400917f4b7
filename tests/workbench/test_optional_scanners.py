"""semgrep and pip-audit: real ones where they are installed, else programs that answer as they do.

``TADPOLE_TEST_SEMGREP`` names the ``bin`` directory of an environment with semgrep.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from making import BUGGY, FIXED, edit, gate_of, git, put

from tadpole.repos.box import VENV as INSIDE
from tadpole.task import FileChange
from tadpole.workbench import audit, semgrep
from tadpole.workbench.base import read_base
from tadpole.workbench.environment import Environment
from tadpole.workbench.finding import Check
from tadpole.workbench.gate import Verdict
from tadpole.workbench.scanners import ScanOutcome, Tools, scan
from tadpole.workbench.semgrep import Program
from tadpole.workbench.usergit import UserGit

SEMGREP = semgrep.program(os.environ.get("TADPOLE_TEST_SEMGREP"))
RULES = """
rules:
  - id: no-eval
    languages: [python]
    severity: ERROR
    message: eval runs whatever it is given
    pattern: eval(...)
"""
# Answers as semgrep does, and finds what a grep for eval( finds.
FAKE = r"""#!/usr/bin/env python3
import json, os, sys
rules = sys.argv[sys.argv.index("--config") + 1]
assert "--disable-nosem" in sys.argv and "--metrics=off" in sys.argv
text = open(rules).read()
found = []
for folder, _, names in os.walk("."):
    for name in names:
        path = os.path.join(folder, name)
        for number, line in enumerate(open(path), 1):
            if "eval(" in line and "no-eval" in text:
                found.append({"check_id": "rules.no-eval", "path": path, "start": {"line": number},
                              "extra": {"severity": "ERROR", "message": "eval runs it"}})
broken = [] if "rules:" in text else [{"level": "error", "message": "invalid rules"}]
for folder, _, names in os.walk("."):
    for name in names:
        path = os.path.join(folder, name)
        if "x = (" in open(path).read():
            broken.append({"level": "warn", "path": path, "message": "Syntax error\nat line 1"})
        if os.path.getsize(path) > 1_000_000:
            assert sys.argv[sys.argv.index("--max-target-bytes") + 1] == "0"
print(json.dumps({"results": found, "errors": broken}))
"""


def test_rules_are_the_policys_the_repositorys_or_the_variables(tmp_path: Path):
    base = {p: FileChange(p, b"") for p in (".semgrep/a.yml", "ci/rules.yml")}
    assert semgrep.rules(base, "", {}) == semgrep.Rules(inside=".semgrep")
    assert semgrep.rules(base, "ci/rules.yml", {}) == semgrep.Rules(inside="ci/rules.yml")
    assert semgrep.rules({}, "", {}) is None
    assert semgrep.rules({}, "", {"SEMGREP_RULES": "p/python"}) is None  # would be fetched
    given = {"SEMGREP_RULES": str(tmp_path)}
    assert semgrep.rules({}, "", given) == semgrep.Rules(outside=tmp_path)
    with pytest.raises(ValueError, match="no rules at ci/none"):
        semgrep.rules(base, "ci/none", {})


def test_a_program_is_run_in_the_environment_that_it_belongs_to(tmp_path: Path):
    put(tmp_path, {"tool/pyvenv.cfg": "home = /usr/bin\n", "tool/bin/semgrep": "#!x\n"})
    (tmp_path / "tool/bin/semgrep").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/semgrep").symlink_to(tmp_path / "tool/bin/semgrep")
    if semgrep.program("") is None:
        found = semgrep.program(str(tmp_path / "bin"))
        assert found and found.path == f"{INSIDE}/bin/semgrep"
        assert found.environment.venv == tmp_path / "tool"


@pytest.fixture
def fake(tmp_path: Path) -> semgrep.Program:
    """An environment whose semgrep answers as the real one does."""
    base = Path(sys.base_prefix)
    put(tmp_path, {"tool/pyvenv.cfg": f"home = {base / 'bin'}\n", "tool/bin/pysemgrep": FAKE})
    (tmp_path / "tool/bin/python").symlink_to(base / "bin" / "python3")
    return semgrep.Program(Environment(tmp_path / "tool", "fake"), f"{INSIDE}/bin/pysemgrep")


OLD = BUGGY + "\n\ndef old(x):\n    return eval(x)\n"
MORE = (
    FIXED
    + "\n\ndef old(x):\n    return eval(x)\n\n\ndef new(y):\n    return eval(y)  # nosemgrep\n"
)


async def scanned(repo: Path, scratch: Path, engine, program, changed: dict, rules: str = RULES):
    put(repo, {"calc.py": OLD, ".semgrep.yml": rules})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "rules")
    gate = await gate_of(repo, scratch, engine)
    done = await scan(
        engine, gate.tree, edit(gate.base, changed), base=gate.base.files,
        policy=gate.rules.scanners, tools=Tools(semgrep=program),
    )  # fmt: skip
    (run,) = [run for run in done.runs if run.tool == "semgrep"]
    return run, [f for f in done.findings if f.tool == "semgrep"]


async def test_semgrep_tells_what_is_new_by_the_rules_of_the_base(
    repo: Path, tmp_path: Path, engine, fake
):
    lax = {".semgrep.yml": "rules: []\n", ".semgrepignore": "*\n", "tests/test_x.py": "eval('1')\n"}
    run, found = await scanned(repo, tmp_path, engine, fake, {"calc.py": MORE, **lax})
    assert run.outcome is ScanOutcome.RAN, run
    assert {(f.path, f.line) for f in found} == {
        ("calc.py", MORE.splitlines().index("    return eval(y)  # nosemgrep") + 1),
        ("tests/test_x.py", 1),
    }
    assert {f.check for f in found} == {Check.SECURITY_HIGH}


async def test_rules_that_are_broken_are_no_clean_scan(repo: Path, tmp_path: Path, engine, fake):
    run, found = await scanned(repo, tmp_path, engine, fake, {"calc.py": MORE}, "nonsense\n")
    assert (run.outcome, found) == (ScanOutcome.FAILED, [])
    assert "invalid rules" in run.detail


async def test_what_semgrep_did_not_read_is_named(repo: Path, tmp_path: Path, engine, fake):
    more = {"odd.py": "x = (\n", "large.py": "y = 1\n" * 200_000}
    run, found = await scanned(repo, tmp_path, engine, fake, {"calc.py": MORE, **more})
    assert (run.outcome, run.detail) == (
        ScanOutcome.NOT_CHECKED,
        "not read: odd.py (Syntax error at line 1)",
    )
    assert [f.path for f in found] == ["calc.py"]  # what it did find counts all the same


@pytest.mark.slow
@pytest.mark.skipif(SEMGREP is None, reason="semgrep is not installed (TADPOLE_TEST_SEMGREP)")
async def test_the_real_semgrep(repo: Path, tmp_path: Path, engine):
    lax = {".semgrep.yml": "rules: []\n", ".semgrepignore": "*\n", "tests/test_x.py": "eval('1')\n"}
    run, found = await scanned(repo, tmp_path, engine, SEMGREP, {"calc.py": MORE, **lax})
    assert run.outcome is ScanOutcome.RAN, run
    assert {f.path for f in found} == {"calc.py", "tests/test_x.py"} and len(found) == 2
    assert {f.rule for f in found} == {"no-eval"}


async def test_rules_without_a_program_are_told_and_neither_of_them_is_no_news(
    repo: Path, tmp_path: Path, engine
):
    run, _ = await scanned(repo, tmp_path, engine, None, {"calc.py": FIXED})
    assert run.outcome is ScanOutcome.NOT_INSTALLED and "pip install semgrep" in run.detail
    git(repo, "rm", "-q", ".semgrep.yml")
    git(repo, "commit", "-qm", "no rules")
    gate = await gate_of(repo, tmp_path, engine)
    asked = {"base": gate.base.files, "policy": gate.rules.scanners}
    change = edit(gate.base, {"README.md": "more\n"})
    done = await scan(engine, gate.tree, change, tools=Tools(), **asked)
    assert "semgrep" not in {run.tool for run in done.runs}
    nowhere = Program(Environment(None, "none"), "/usr/bin/semgrep")
    done = await scan(engine, gate.tree, change, tools=Tools(semgrep=nowhere), **asked)
    assert {r.tool: r.outcome for r in done.runs}["semgrep"] is ScanOutcome.NO_RULES


# --- pip-audit -------------------------------------------------------------------------------

ADDED = {
    "requirements.txt": "requests==2.19.0\n# a comment\n-r other.txt\nflask>=2  # any\n",
    "pyproject.toml": '[project]\nname = "x"\ndependencies = ["Jinja2===2.4.1", "rich"]\n'
    '[dependency-groups]\ndev = ["click==8.1.0", {include-group = "x"}]\n',
}


def answering(place: Path, body: str, code: int = 0) -> tuple[str, ...]:
    """A program that keeps what it was asked and prints ``body``."""
    script = place / "pip-audit"
    script.write_text(
        f"import pathlib, sys\nat = sys.argv.index('--requirement') + 1\n"
        f"asked = pathlib.Path(sys.argv[at]).read_text()\n"
        f"pathlib.Path({str(place / 'asked')!r}).write_text(asked)\n"
        f"print({body!r})\nprint('the database is away', file=sys.stderr)\nsys.exit({code})\n"
    )
    return (sys.executable, str(script))


def added(repo: Path, texts: dict[str, str]):
    return audit.new_requirements(edit(read_base(UserGit(repo), dirty=False), texts))[0]


def test_only_what_is_newly_asked_for_is_looked_up(repo: Path):
    found = [(path, str(one)) for path, one in added(repo, ADDED)]
    assert found == [
        ("pyproject.toml", "click==8.1.0"),
        ("pyproject.toml", "Jinja2===2.4.1"),
        ("pyproject.toml", "rich"),
        ("requirements.txt", "requests==2.19.0"),
        ("requirements.txt", "flask>=2"),
    ]
    put(repo, ADDED)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "dependencies")
    more = ADDED["requirements.txt"].replace("2.19.0", "2.20.0")
    assert [str(one) for _, one in added(repo, {"requirements.txt": more})] == ["requests==2.20.0"]
    assert added(repo, {"calc.py": FIXED}) == []


ODD = (
    ("not TOML [", "at line 1"),
    ("project = 1\n", "project is 1, no table"),
    ("dependency-groups = []\n", "dependency-groups is [], no table"),
    ("[dependency-groups]\ndev = 'click'\n", "dev is 'click', no list"),
    ("[project]\ndependencies = [1]\n", "1 is listed, and is no requirement"),
    (f"x = {'[' * 9000}\n", "nested too deeply"),
    (f"x = {'9' * 5000}\n", "too many digits"),
    (f"project = 0x{'f' * 9000}\n", "project is"),
)


@pytest.mark.parametrize(("text", "told"), ODD, ids=range(len(ODD)))
def test_a_manifest_of_an_odd_shape_is_told_and_ends_nothing(repo: Path, text: str, told: str):
    files = {"pyproject.toml": text, "requirements.txt": "requests==2.19.0\n"}
    base = read_base(UserGit(repo), dirty=False)
    found, (unread,) = audit.new_requirements(edit(base, files))
    assert [path for path, _ in found] == ["requirements.txt"]
    assert unread.startswith("pyproject.toml cannot be read (") and told in unread
    # What an old state of it says, that cannot be read, takes nothing away.
    put(repo, {"pyproject.toml": text})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "odd")
    new = "[project]\ndependencies = ['click==8.1.0']\n"
    assert [str(one) for _, one in added(repo, {"pyproject.toml": new})] == ["click==8.1.0"]


@pytest.mark.slow
async def test_a_job_goes_on_over_a_manifest_of_an_odd_shape(repo: Path, tmp_path: Path, engine):
    gate = await gate_of(repo, tmp_path, engine)
    clean = {"dependencies": []}
    gate.tools = Tools(pip_audit=answering(tmp_path, json.dumps(clean)))
    report = await gate.judge(edit(gate.base, {"pyproject.toml": "project = 1\n"}), "")
    told = {f.tool: f.message for f in report.warnings if f.check is Check.SCANNER_NOT_RUN}
    assert told["pip-audit"] == (
        "pip-audit could not check everything: pyproject.toml cannot be read (project is 1, no "
        "table)"
    )


async def test_a_known_flaw_is_a_finding_and_the_rest_is_not_taken_for_clean(
    repo: Path, tmp_path: Path
):
    flaw = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.20.0"]}
    skipped = {"name": "click", "skip_reason": "Dependency not found on PyPI: click (8.1.0)"}
    known = {"name": "requests", "version": "2.19.0", "vulns": [flaw]}
    clean = {"name": "jinja2", "version": "2.4.1", "vulns": []}
    answer = {"dependencies": [known, clean, skipped]}
    done = await audit.audit(answering(tmp_path, json.dumps(answer), 1), added(repo, ADDED))
    (found,) = done.findings
    assert (found.check, found.path, found.rule) == (
        Check.VULNERABLE,
        "requirements.txt",
        "PYSEC-1",
    )
    assert "requests 2.19.0" in found.message and "fixed in: 2.20.0" in found.message
    for told in ("click 8.1.0: Dependency not found", "rich names no exact version", "flask>=2"):
        assert told in done.unknown
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["click==8.1.0", "jinja2==2.4.1", "requests==2.19.0"]


@pytest.mark.parametrize(
    "body",
    ["", "No known vulnerabilities found", "[]", '{"dependencies": []}', '{"dependencies": 3}'],
)
async def test_no_answer_is_not_clean(repo: Path, tmp_path: Path, body: str):
    pinned = added(repo, {"requirements.txt": "requests==2.19.0\n"})
    done = await audit.audit(answering(tmp_path, body), pinned)
    assert done.findings == () and done.unknown


@pytest.mark.slow
async def test_the_gate_says_what_could_not_be_checked(repo: Path, tmp_path: Path, engine):
    gate = await gate_of(repo, tmp_path, engine)
    change = edit(gate.base, {"calc.py": FIXED, "requirements.txt": "requests==2.19.0\n"})
    gate.tools = Tools(pip_audit=())
    report = await gate.judge(change, "")
    told = {f.tool: f.message for f in report.warnings if f.check is Check.SCANNER_NOT_RUN}
    assert told["pip-audit"] == "pip-audit did not run (not installed): pip install pip-audit"
    gate.tools = Tools(pip_audit=answering(tmp_path, "", 1))
    report = await gate.judge(change, "")
    told = {f.tool: f.message for f in report.warnings if f.check is Check.SCANNER_NOT_RUN}
    assert "could not check everything: it gave no answer (the database is" in told["pip-audit"]
    flaw = {"id": "PYSEC-1", "fix_versions": []}
    answer = {"dependencies": [{"name": "requests", "version": "2.19.0", "vulns": [flaw]}]}
    gate.tools = Tools(pip_audit=answering(tmp_path, json.dumps(answer), 1))
    report = await gate.judge(change, "")
    assert report.verdict is Verdict.BLOCK
    assert [f.check for f in report.blocks] == [Check.VULNERABLE]
