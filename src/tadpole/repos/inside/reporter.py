"""Runs pytest inside the box and writes down exactly what happened.

A program of its own: standard library, pytest, and (for coverage alone) coverage. It is bound
read-only into the box and started as ``python reporter.py`` in the work directory with a JSON
request on standard input. Results go to a file, one JSON line per fact as it happens, so that
a run which is killed half way still tells what it saw. Node ids come in the request and are
selected after collection: on a command line some of them would be taken apart.

Guards against: misread output, ids with odd characters, one hanging test. Does not guard against
code under test that forges the result file: where that matters, the grader has its own channel.
Nothing here may warn, because some suites turn warnings into errors.
"""

# ruff: noqa: E402
import gc

gc.disable()  # what is loaded here stays; looking through it for garbage costs a tenth of a start

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from time import monotonic, process_time  # themselves, whatever stands for them later
from types import FrameType
from typing import Any

import pytest
from fastclock import hurry

RANK = ("passed", "xpassed", "xfailed", "skipped", "failed", "error")  # the worst one counts
PATIENCE = 5  # times its limit that a test may take by the clock: a busy machine is not its fault


class Reporter:
    """A pytest plugin: selects, times and limits tests, and records how each one ended."""

    def __init__(
        self, request: dict[str, Any], write: Callable[[dict[str, Any]], None], coverage: Any = None
    ) -> None:
        self.ids = None if request["ids"] is None else set(request["ids"])
        self.reverse = request["reverse"]
        self.limit = request["limit"]
        self.limits = request["limits"]
        self.details = request["details"]
        self.gives_up = request.get("gives_up", False)  # at the first test that does not end
        self.write = write
        self.coverage = coverage
        self.begin = hurry(pace) if (pace := request.get("pace", 1)) > 1 else lambda: None
        self.deadline: float | None = None
        self.clock = (0.0, 0.0)  # limit of the test, and processor time when it began
        self.now: dict[str, Any] = {}
        self.frames = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep only the ids that were asked for; turn the order round on request."""
        if self.ids is not None:
            away = [item for item in items if item.nodeid not in self.ids]
            items[:] = [item for item in items if item.nodeid in self.ids]
            config.hook.pytest_deselected(items=away)
        if self.reverse:
            items.reverse()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a module that could not be collected."""
        if report.failed:
            text = str(report.longrepr)
            self.write({"broken": report.nodeid, "message": text[-2000:]})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record that collection came to its end."""
        self.write({"collected": len(session.items)})

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Bracket one test: its clock, its deadline, its coverage context."""
        self.now = {"id": item.nodeid, "status": "passed"}
        limit = self.limits.get(item.nodeid, self.limit)
        self.begin()
        start = monotonic()
        self.deadline = start + limit if limit else None
        self.clock = (limit or 0.0, process_time())
        if self.coverage:
            self.coverage.switch_context(item.nodeid)
        outcome = yield
        if self.coverage:
            self.coverage.switch_context("")
        if outcome.excinfo is not None:  # pytest.exit: nobody knows how the test would have ended
            return
        self.now["seconds"] = round(monotonic() - start, 4)
        self.write(self.now)
        if self.gives_up and "hung" in self.now:
            item.session.shouldfail = "a test does not end"

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Stop a hanging set-up."""
        yield from self._limited()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Stop a hanging test."""
        yield from self._limited()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Stop a hanging tear-down."""
        yield from self._limited()

    def _limited(self) -> Iterator[None]:
        if self.deadline is None:
            yield
            return
        left = max(0.05, self.deadline - monotonic())
        before = signal.signal(signal.SIGALRM, self._look)
        # It repeats, because a test may swallow the first one, or have waited for a processor.
        signal.setitimer(signal.ITIMER_REAL, left, max(left / 4, 0.1))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _look(self, _signal: int, _frame: FrameType | None) -> None:
        """End a test that used up its limit in processor time, or waits for much longer."""
        limit, spent = self.clock
        waited = monotonic() - (self.deadline or 0.0) + limit
        if process_time() - spent >= 0.9 * limit or waited >= PATIENCE * limit:
            self.now["hung"] = True
            pytest.fail("took longer than its limit", pytrace=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: "pytest.CallInfo[None]") -> Iterator[None]:
        """Keep the frames of a failure: pytest's text of them costs more than most tests."""
        yield  # before it, nothing is there of a test of unittest
        if self.details and call.excinfo is not None:
            entries = [(_relative(str(one.path)), one.lineno + 1) for one in call.excinfo.traceback]
            found = [f"{path}:{line}:" for path, line in entries if not os.path.isabs(path)]
            self.frames = "\n".join(dict.fromkeys(found))  # a recursion has each of them often

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Fold set-up, call and tear-down into one status."""
        if not self.now:
            return
        status = _status(report)
        if RANK.index(status) >= RANK.index(self.now["status"]) and status != "passed":
            self.now["status"] = status
            if report.failed:
                self.now.update(_failure(report))
                if self.details:
                    self.now["frames"] = self.frames[-8000:]


def _status(report: pytest.TestReport) -> str:
    if report.passed:
        return "xpassed" if hasattr(report, "wasxfail") else "passed"
    if report.skipped:
        return "xfailed" if hasattr(report, "wasxfail") else "skipped"
    return "failed" if report.when == "call" else "error"


def _failure(report: pytest.TestReport) -> dict[str, Any]:
    crash = getattr(report.longrepr, "reprcrash", None)
    found: dict[str, Any] = {
        "message": _shortened(crash.message if crash else str(report.longrepr))
    }
    if crash:
        found["path"] = _relative(str(crash.path))
        found["line"] = crash.lineno
    return found


def _shortened(message: str, half: int = 1000) -> str:
    """The start of a message; where a test's own words are long, pytest's comparison too."""
    compared = message.rfind("\nassert ")
    if len(message) <= 2 * half or compared < half:
        return message[: 2 * half]
    return f"{message[:half]}\n...{message[compared:][:half]}"


def _relative(path: str) -> str:
    root = os.getcwd() + os.sep
    return path[len(root) :] if path.startswith(root) else path


def lines_covered(data: Any) -> dict[str, Any]:
    """Coverage as {"ids", "sets", "lines": {path: {line: index of a set of ids}}, "imported"}.

    The last are the lines of each file that ran while no test did.
    """
    imported: dict[str, list[int]] = {}
    ids: dict[str, int] = {}
    sets: dict[tuple[int, ...], int] = {}
    lines: dict[str, dict[int, int]] = {}
    for path in sorted(data.measured_files()):
        found: dict[int, int] = {}
        imported[_relative(path)] = early = []
        for line, names in data.contexts_by_lineno(path).items():
            if "" in names:
                early.append(line)
            group = tuple(sorted(ids.setdefault(name, len(ids)) for name in names if name))
            if group:
                found[line] = sets.setdefault(group, len(sets))
        if found:
            lines[_relative(path)] = found
    return {
        "ids": list(ids),
        "sets": [list(group) for group in sets],
        "lines": lines,
        "imported": imported,
    }


def run(request: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> int:
    """Run pytest in this process as the request says; its exit code."""
    sys.path[0] = os.getcwd()  # what ``python -m pytest`` does
    paths = [path for path in request["paths"] if os.path.exists(path)]
    if request["paths"] and not paths:
        paths = request["paths"][:1]  # pytest itself says that it is missing
    args = [*request["options"], *paths]
    sys.argv = ["pytest", *args]
    coverage = None
    if request["cover"]:
        from coverage import Coverage

        coverage = Coverage(
            data_file=None,
            config_file=False,
            include=request["cover"],
            omit=request["omit"],
            messages=False,
        )
        coverage.start()
    code = int(pytest.main(args, plugins=[Reporter(request, write, coverage)]))
    if coverage:
        coverage.stop()
        write({"coverage": lines_covered(coverage.get_data())})
    write({"exit": code})
    return code


def close_input() -> dict[str, Any]:
    """The request on standard input, which is empty from here on."""
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return request


def main() -> int:
    """Read the request, run pytest, leave with its exit code."""
    gc.freeze()
    gc.enable()
    request = close_input()
    with open(request["out"], "w", encoding="utf-8") as out:

        def write(fact: dict[str, Any]) -> None:
            out.write(json.dumps(fact) + "\n")
            out.flush()

        return run(request, write)


if __name__ == "__main__":
    ended = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(ended)  # all is written: threads that a test left behind are not waited for
