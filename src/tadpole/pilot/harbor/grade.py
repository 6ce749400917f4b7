"""Grades the work tree inside a Harbor verifier. Standard library and pytest only.

Reward 1 where every expected test passed, else 0; a test that did not run has not passed.
``reward.json`` holds numbers only, ``reward-details.json`` says which tests were wanting.

Guards against: changed or missing test files, tests that vanish, a stale or early verdict.
Does not guard against code under test that forges the result file from inside the test
process: Harbor's separate verifier keeps the agent away from it, Tadpole's own grader has more.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
LOGS = os.environ.get("TADPOLE_LOGS", "/logs/verifier")


def write(name: str, value: Mapping[str, Any]) -> None:
    """Write a JSON file of the verdict."""
    with open(os.path.join(LOGS, name), "w", encoding="utf-8") as stream:
        json.dump(value, stream)


def verdict(expected: Mapping[str, Any], passed: Sequence[str]) -> dict[str, float]:
    """The reward and what it is made of, as numbers."""
    share: dict[str, float] = {}
    for kind in ("fail_to_pass", "pass_to_pass"):
        wanted = expected[kind]
        share[kind] = sum(i in passed for i in wanted) / max(1, len(wanted))
    return {"reward": int(all(value == 1 for value in share.values())), **share}


def restore(workdir: str) -> None:
    """Put the hidden test files back, over whatever lies there."""
    hidden = os.path.join(HERE, "hidden")
    for folder, _, names in os.walk(hidden):
        for name in names:
            source = os.path.join(folder, name)
            target = os.path.join(workdir, os.path.relpath(source, hidden))
            if os.path.isdir(target) and not os.path.islink(target):
                shutil.rmtree(target)
            elif os.path.lexists(target):
                os.unlink(target)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)


class Recorder:
    """A pytest plugin: runs the wanted ids only and remembers which passed."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = wanted
        self.status: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the wanted ids."""
        items[:] = [item for item in items if item.nodeid in self.wanted]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test passed when its call passed and neither set-up nor tear-down failed."""
        if report.when == "call":
            self.status.setdefault(report.nodeid, True)
        if report.outcome != "passed":
            self.status[report.nodeid] = False


def inner(expected: Mapping[str, Any], out: str) -> None:
    """The test process."""
    import pytest

    wanted = set(expected["fail_to_pass"]) | set(expected["pass_to_pass"])
    recorder = Recorder(wanted)
    files = sorted({i.partition("::")[0] for i in wanted})
    sys.path[:1] = [os.path.abspath(path) for path in expected["import_paths"]]
    pytest.main([*expected["pytest_args"], "-p", "no:cacheprovider", *files], plugins=[recorder])
    with open(out, "w", encoding="utf-8") as stream:
        json.dump([i for i, passed in recorder.status.items() if passed], stream)


def main() -> None:
    """Grade and write the verdict."""
    with open(os.path.join(HERE, "expected.json"), encoding="utf-8") as stream:
        expected = json.load(stream)
    if len(sys.argv) > 1:
        inner(expected, sys.argv[1])
        return
    os.makedirs(LOGS, exist_ok=True)
    write("reward.json", verdict(expected, ()))
    workdir = expected["workdir"]
    restore(workdir)
    out = os.path.join(LOGS, "passed.json")
    if os.path.exists(out):
        os.unlink(out)
    passed: list[str] = []
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **expected["env"])
    try:
        subprocess.run(
            [sys.executable, os.path.abspath(__file__), out],
            cwd=workdir,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=expected["seconds"],
            check=False,
        )
        with open(out, encoding="utf-8") as stream:
            passed = json.load(stream)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        print("no verdict of the test process:", error)
    write("reward.json", verdict(expected, passed))
    missing = [i for i in expected["fail_to_pass"] + expected["pass_to_pass"] if i not in passed]
    write("reward-details.json", {"not_passed": missing})


if __name__ == "__main__":
    main()
