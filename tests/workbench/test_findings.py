"""What is found in a patch by reading it: one row per kind, and the row that must not be found."""

import time

import pytest
from making import edit

from tadpole.errors import ConfigError
from tadpole.task import FileChange
from tadpole.visible import visible
from tadpole.workbench.base import Base
from tadpole.workbench.finding import Action, Check, Severity
from tadpole.workbench.oddtext import odd_text
from tadpole.workbench.policy import GatePolicy, read_policy
from tadpole.workbench.pythoncode import python_findings
from tadpole.workbench.riskypath import line_counts, risky_paths

TEST = "import pytest\n\ndef test_a():\n    assert f(1) == 2\n    assert f(2) == 3\n"


def base_of(files: dict[str, str]) -> Base:
    found = {path: FileChange(path, text.encode()) for path, text in files.items()}
    return Base("0" * 40, False, found, {})


def rules(before: dict, after: dict) -> list[tuple[str, int]]:
    return [(f.rule, f.line) for f in python_findings(edit(base_of(before), after))]


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import subprocess as s\ns.run(x)\n", "process"),
        ("from os import system\n\nsystem(x)\n", "process"),
        ("import os\nos.execvp(x, y)\n", "process"),
        ("eval(x)\n", "evaluation"),
        ("from importlib import import_module as im\nim(x)\n", "evaluation"),
        ("import urllib.request\nurllib.request.urlopen(x)\n", "network"),
        ("import socket\nsocket.socket()\n", "network"),
        ("import pickle\npickle.loads(x)\n", "deserialization"),
        ("import yaml\nyaml.load(x)\n", "deserialization"),
        ("import ctypes\nctypes.CDLL(x)\n", "native"),
        ("import os\nos.posix_spawn(x, y, z)\n", "process"),
        # By another name, or handed to something else that calls it.
        ("import subprocess\nrun = subprocess.run\n", "process"),
        ("map(eval, x)\n", "evaluation"),
        ("import functools, os\nfunctools.partial(os.system, x)\n", "process"),
        ("import pickle\nload = pickle.loads\n", "deserialization"),
        ("from subprocess import *\n", "process"),
    ],
)
def test_a_dangerous_call_is_found_where_it_is_new(code: str, rule: str):
    line = code.count("\n")
    assert rules({}, {"a.py": code}) == [(rule, line)]
    assert rules({"a.py": code}, {"a.py": f"\n{code}y = 1\n"}) == []  # moved, not new
    assert rules({"a.py": code}, {"a.py": code + code.splitlines()[-1]}) == [(rule, line + 1)]


def test_what_only_looks_dangerous_is_not_found():
    code = "re.compile(x)\nmodel.eval()\ndef system(): pass\nsystem()\nself.exec(x)\nevaluate(1)\n"
    assert rules({}, {"a.py": code}) == []
    own = "commands = []\ncommands.append(1)\ndef f(socket):\n    socket.send(1)\n"
    assert rules({}, {"a.py": own}) == []
    named = "import subprocess as s\ntry:\n    f(s.PIPE)\nexcept s.TimeoutExpired:\n    g()\n"
    assert rules({}, {"a.py": named}) == []


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        ("try:\n    f()\nexcept:\n    pass\n", Severity.MEDIUM),
        ("try:\n    f()\nexcept Exception:\n    ...\n", Severity.MEDIUM),
        (
            "for x in y:\n    try:\n        f()\n    except KeyError:\n        continue\n",
            Severity.LOW,
        ),
        ("from contextlib import suppress\nwith suppress(Exception):\n    f()\n", Severity.MEDIUM),
        ("import contextlib\nwith contextlib.suppress(OSError):\n    f()\n", Severity.LOW),
    ],
)
def test_a_swallowed_exception(code: str, severity: Severity):
    (found,) = python_findings(edit(base_of({}), {"a.py": code}))
    assert (found.check, found.severity) == (Check.SWALLOWED_EXCEPTION, severity)
    handled = (
        code.replace("suppress(", "closing(")
        .replace("pass", "log()")
        .replace("...", "raise")
        .replace("continue", "x = 1")
    )
    assert rules({}, {"a.py": handled}) == []


@pytest.mark.parametrize(
    ("after", "rule"),
    [
        (TEST.replace("    assert f(2) == 3\n", ""), "assertions-removed"),
        (TEST.replace("def test_a", "def check_a"), "test-removed"),
        (TEST.replace("def test_a", "@pytest.mark.skip\ndef test_a"), "skip-added"),
        (TEST.replace("assert f(2) == 3", "assert True"), "constant-assertion"),
        (None, "test-file-removed"),
    ],
)
def test_a_weakened_test(after: str | None, rule: str):
    found = python_findings(edit(base_of({"tests/test_a.py": TEST}), {"tests/test_a.py": after}))
    assert [(f.check, f.rule) for f in found] == [(Check.TEST_WEAKENED, rule)]


def test_a_stronger_test_is_no_weakening():
    more = TEST + "\ndef test_b():\n    assert f(3) == 4\n"
    assert rules({"tests/test_a.py": TEST}, {"tests/test_a.py": more}) == []


def test_what_parsed_and_no_longer_does_is_found():
    (found,) = python_findings(edit(base_of({"a.py": "x = 1\n"}), {"a.py": "x = (\n"}))
    assert found.check is Check.UNPARSABLE
    # A fixture that never did is no fault of the patch, but nobody has looked at it.
    (never,) = python_findings(edit(base_of({"a.py": "x = (\n"}), {"a.py": "y = (\n"}))
    assert (never.check, never.path) == (Check.SCANNER_NOT_RUN, "a.py")
    assert "as before the patch" in never.message
    assert rules({"a.py": "x = (\n"}, {"a.py": None}) == []
    for deep in (
        "(" * 50_000,
        "x = " + "-" * 7_000 + "1",
        "x = " + "-" * 70_000 + "1",
        "eval(" + "x." * 3000 + "y)",
        "f(" + "+".join("a" * 5000) + ")",
    ):
        found = python_findings(edit(base_of({}), {"a.py": deep}))
        assert [f.check for f in found] in ([Check.UNPARSABLE], [Check.DANGEROUS_CALL])


@pytest.mark.parametrize(
    ("path", "check", "rule"),
    [
        (".github/workflows/ci.yml", Check.RISKY_PATH, "ci"),
        (".pre-commit-config.yaml", Check.RISKY_PATH, "hook"),
        ("sub/.gitattributes", Check.RISKY_PATH, "git"),
        ("sitecustomize.py", Check.RISKY_PATH, "start-up"),
        ("lib/x.pth", Check.RISKY_PATH, "start-up"),
        ("AGENTS.md", Check.RISKY_PATH, "agent"),
        ("Makefile", Check.RISKY_PATH, "build"),
        ("bin/run.sh", Check.RISKY_PATH, "build"),
        ("tests/conftest.py", Check.RISKY_PATH, "test-config"),
        (".env", Check.RISKY_PATH, "environment"),
        (".tadpole.toml", Check.POLICY_CHANGED, "policy"),
        ("poetry.lock", Check.DEPENDENCY, "manifest"),
        ("api_pb2.py", Check.GENERATED, "generated"),
    ],
)
def test_a_path_that_runs_or_decides_by_itself(path: str, check: Check, rule: str):
    found = risky_paths(edit(base_of({}), {path: "x\n"}), "", GatePolicy())
    assert (check, rule) in [(f.check, f.rule) for f in found]
    assert risky_paths(edit(base_of({}), {"src/plain.py": "x\n"}), "", GatePolicy()) == []


def test_binary_mode_size_dependency_and_area():
    base = base_of({"a.py": "x\n", "requirements.txt": "requests==2\n"})
    change = edit(base, {"a.py": "x\n", "b.bin": b"\0\1", "requirements.txt": "requests==2\nevil\n",
                         "far/c.py": "y\n" * 500}, runs=("a.py",))  # fmt: skip
    found = {f.check: f for f in risky_paths(change, "Fix `src/core/x.py`.", GatePolicy())}
    assert found[Check.BINARY].path == "b.bin"
    assert found[Check.MODE_CHANGE].message == "is executable now"
    assert "evil" in found[Check.DEPENDENCY].message
    assert found[Check.SIZE].message == "4 files and 501 lines"
    assert "src/core" in found[Check.OUTSIDE_AREA].message


def test_lines_are_counted():
    change = edit(base_of({"a": "1\n2\n3\n"}), {"a": "1\nx\ny\n3\n"})
    assert line_counts(change.files[0]) == (2, 1)


def test_lines_of_a_large_generated_file_are_counted_in_no_time():
    old = "".join(f"{n % 9}\n" for n in range(50_000))  # every line as often as thousands of others
    new = "".join(f"{n % 7}\n" for n in range(50_000))
    start = time.process_time()
    added, removed = line_counts(edit(base_of({"a": old}), {"a": new}).files[0])
    assert added == removed > 10_000 and time.process_time() - start < 5
    around = "x\n" * 50_000
    change = edit(base_of({"a": f"{around}1\n2\n{around}"}), {"a": f"{around}2\n3\n4\n{around}"})
    assert line_counts(change.files[0]) == (2, 1)


HIDDEN = (
    "\u202e\u200b\u2066\x1b\x08\ufeff\ue000\u2028\u2029\u034f\u3164\u115f\u1160\uffa0\u2800"
    "\ufe00\ufe0f\U000e0100\U000e01ef"
)


@pytest.mark.parametrize("char", HIDDEN, ids=ascii)
def test_characters_that_hide_are_found_and_shown(char: str):
    change = edit(base_of({"a.py": "x = 1\n"}), {"a.py": f"x = 1\ny = '{char}'\n"})
    (found,) = odd_text(change)
    assert (found.line, f"U+{ord(char):04X}" in found.message) == (2, True)
    assert char not in visible(f"a{char}b") and len(visible(f"a{char}b")) > 3
    same = f"y = '{char}'\n"
    assert odd_text(edit(base_of({"a.py": same}), {"a.py": same + "x = 1\n"})) == []
    (named,) = odd_text(edit(base_of({}), {f"a{char}.py": "x = 1\n"}))
    assert (named.rule, char in named.message) == ("path", False)


def test_ordinary_text_of_the_world_is_not_odd():
    text = "größer 漢字 café \U0001f600 \u26a0\ufe0f 1\ufe0f\u20e3\tx\r\n"
    assert odd_text(edit(base_of({}), {"a.txt": text})) == []
    assert visible("größer 漢字 \u26a0\ufe0f") == "größer 漢字 \u26a0\ufe0f"
    # What is hidden behind an emoji, a byte a selector, is not its style.
    assert visible("\u26a0\ufe0f\ufe0f\ufe01") == "\u26a0\ufe0f<U+FE0F><U+FE01>"
    assert visible("a\tb\r\x1b[2J\nc") == "a\\tb\\r\\x1b[2J\\nc"
    assert visible("a\n\tb", lines=True) == "a\n\tb"
    assert visible(b"\xe9".decode("utf-8", "surrogateescape")) == "\\xe9"


def policy(text: str):
    return read_policy(base_of({".tadpole.toml": text}).files)


def test_a_policy_is_read_with_its_defaults():
    found = policy('[tests]\ncommand = "pytest -x"\n[gate]\nsecret = "warn"\nmax_files = 3\n')
    assert found.tests.command == "pytest -x" and found.gate.max_files == 3
    assert found.gate.action(Check.SECRET) is Action.WARN
    assert found.gate.action(Check.NEWLY_FAILING) is Action.BLOCK
    assert all(isinstance(policy("").gate.action(check), Action) for check in Check)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[gate]\nsecrets = "warn"\n', "unknown key gate.secrets; did you mean gate.secret?"),
        ("[test]\n", "unknown key test; did you mean tests?"),
        ('[gate]\nsecret = "maybe"\n', "gate.secret: .*'block', 'warn' or 'ignore', got 'maybe'"),
        ("gate = 1\n", r"gate is 1: make it a table, \[gate\]"),
        ("[gate\n", "not valid TOML"),
        (f"x = {'[' * 9000}\n", "not valid TOML"),
        (f"x = {'9' * 5000}\n", "not valid TOML"),
        (f"gate = 0x{'f' * 9000}\n", "gate is .*: make it a table"),
    ],
)
def test_a_policy_that_does_not_hold_is_one_clear_line(text: str, told: str):
    with pytest.raises(ConfigError, match=told) as error:
        policy(text)
    assert "\n" not in str(error.value)
