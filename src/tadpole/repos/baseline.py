"""What a test suite does before any change: three whole runs in fresh boxes.

A test counts as stable that passed in every run: one plain, one with another hash seed, the last
test first and clocks that run a thousand times as fast, one with a third hash seed and line
coverage per test. Three runs do not prove stability; whoever makes tasks asks in addition that a
failing test executes the changed lines. So fast a clock finds, on an idle machine too, a test that
allows a second for more than a millisecond of work.
Tests of more than one outcome (flaky), and those that are skipped or expected to fail, are
recorded with their outcome and never decide a grade.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tadpole.errors import SourceError
from tadpole.outcome import TestStatus
from tadpole.protocols import ExecReason, SandboxEngine, SandboxSpec
from tadpole.repos.box import PYTHON, WORKDIR
from tadpole.repos.testrun import LineCoverage, TestReport, run_tests, with_reporter
from tadpole.task import Recipe
from tadpole.together import each

FORMAT = 4  # of the file; a baseline of another one is measured again
SUITE_SECONDS = 300.0  # deadline of one run
TEST_SECONDS = 60.0  # limit of one test
PACE = 1000  # of the clocks, where tests that count on a quick machine are looked for
ENOUGH = 0.5  # share of the suite that has to be stable


@dataclass(frozen=True)
class _Run:
    hash_seed: int
    reverse: bool = False
    pace: int = 1
    cover: bool = False


_RUNS = (_Run(0), _Run(2, cover=True), _Run(1, reverse=True, pace=PACE))


async def measure(
    engine: SandboxEngine,
    spec: SandboxSpec,
    recipe: Recipe,
    name: str,
    slots: asyncio.Semaphore,
) -> bytes:
    """Run the suite three times, each in one of ``slots``; the JSON that Baseline reads.

    Raises SourceError where it cannot be a baseline: not importable from the checkout, no
    tests, too many that do not pass, too slow.
    """
    await _check_imports(engine, spec, recipe, name)

    async def one(run: _Run) -> TestReport:
        async with slots:
            report = await _whole(engine, spec, recipe, run)
        _refuse(report, name)  # which ends the other runs too
        return report

    reports = await each(one(run) for run in _RUNS)
    plain = reports[0]
    passed = frozenset.intersection(*(report.passed for report in reports))
    stable = [node_id for node_id in plain.statuses if node_id in passed]
    red = [node_id for node_id in plain.statuses if _red(node_id, reports)]
    if not stable or len(stable) < ENOUGH * (len(stable) + len(red)):
        raise SourceError(_too_red(name, reports, red, len(plain.statuses)))
    covered = next(report.coverage for report in reports if report.coverage)
    data: dict[str, Any] = {
        "stable": stable,
        "seconds": [plain.seconds[node_id] for node_id in stable],
        "collected": len(plain.statuses),
        "suite_seconds": round(plain.wall, 3),
        **_aside(plain.statuses, reports, set(stable)),
        "red": _told_red(red, reports),
        **_index(covered, stable),
    }
    return json.dumps(data, separators=(",", ":")).encode()


async def _whole(engine: SandboxEngine, spec: SandboxSpec, recipe: Recipe, run: _Run) -> TestReport:
    box = await engine.start(with_reporter(spec))
    try:
        cover, omit = patterns(recipe) if run.cover else ((), ())
        return await run_tests(
            box,
            recipe,
            PYTHON,
            timeout=SUITE_SECONDS,
            test_seconds=TEST_SECONDS,
            hash_seed=run.hash_seed,
            reverse=run.reverse,
            pace=run.pace,
            cover=cover,
            omit=omit,
        )
    finally:
        await box.close()


def patterns(recipe: Recipe) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Absolute file patterns in the box: the library's sources, and what of them is tests."""
    cover = []
    for root in recipe.import_paths:
        base = f"{WORKDIR}/{root}".removesuffix("/.")
        for package in recipe.packages:
            cover += [f"{base}/{package}/*", f"{base}/{package}.py"]
    tests = (f"{WORKDIR}/{path}" for path in recipe.test_paths)
    omit = [pattern for path in tests for pattern in (path, f"{path}/*")]
    return tuple(cover), (*omit, "*/conftest.py", "*/tests/*", "*/test_*.py")


async def _check_imports(
    engine: SandboxEngine, spec: SandboxSpec, recipe: Recipe, name: str
) -> None:
    """Each package has to come from the checkout: else tests would test something else."""
    if not recipe.packages:
        raise SourceError(
            f"{name} has no importable package that was found: name it in its pyproject.toml, "
            '[tool.tadpole] packages = ["..."]'
        )
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    module = importlib.import_module(name)\n"
        "    print(getattr(module, '__file__', None) or list(module.__path__)[0])\n"
    )
    box = await engine.start(spec)
    try:
        done = await box.exec([PYTHON, "-P", "-c", code, *recipe.packages], timeout=60.0)
    finally:
        await box.close()
    if done.code:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SourceError(
            f"{name} cannot be imported ({last}): add what is missing to its pyproject.toml, "
            "[tool.tadpole] requirements, or the directory of its packages to import_paths"
        )
    for package, file in zip(recipe.packages, done.stdout.splitlines(), strict=False):
        if not file.startswith(WORKDIR + "/"):
            raise SourceError(
                f"{name}: {package} is imported from {file}, not from the checkout: set "
                "[tool.tadpole] import_paths in its pyproject.toml"
            )


def _refuse(report: TestReport, name: str) -> None:
    """Raises SourceError where a run says nothing about the suite."""
    if report.reason is ExecReason.TIMEOUT:
        raise SourceError(
            f"the tests of {name} take longer than {SUITE_SECONDS:.0f} s: choose a part with "
            "[tool.tadpole] test_paths in its pyproject.toml"
        )
    if report.finished and report.statuses:
        return
    if report.collection_errors:
        where, message = next(iter(report.collection_errors.items()))
        said = last_line(message)
        raise SourceError(
            f"the tests of {name} cannot be loaded ({where}: {said}): name what they need with "
            "[tool.tadpole] requirements in its pyproject.toml, or other test_paths"
        )
    if not report.finished or report.exit_code in (3, 4):
        said = last_line(report.output_tail)
        raise SourceError(
            f"pytest cannot run the tests of {name} ({said}): name what they need with "
            "[tool.tadpole] requirements in its pyproject.toml, or other pytest_args"
        )
    raise SourceError(
        f"{name} has no tests that pytest finds below its test paths: name others with "
        "[tool.tadpole] test_paths in its pyproject.toml"
    )


def _red(node_id: str, reports: list[TestReport]) -> bool:
    """Whether it failed in some run; skipped and expected failures say nothing."""
    statuses = {report.statuses.get(node_id, TestStatus.MISSING) for report in reports}
    return bool(statuses & {TestStatus.FAILED, TestStatus.ERROR, TestStatus.MISSING})


def _aside(
    node_ids: Iterable[str], reports: list[TestReport], stable: set[str]
) -> dict[str, list[str]]:
    """The tests that never decide: of more than one outcome, skipped or expected to fail."""
    found: dict[str, list[str]] = {"flaky": [], "skipped": [], "xfailed": [], "xpassed": []}
    for node_id in node_ids:
        if node_id in stable:
            continue
        statuses = {report.statuses.get(node_id, TestStatus.MISSING) for report in reports}
        kind = "flaky" if len(statuses) > 1 else statuses.pop().value
        if kind in found:
            found[kind].append(node_id)
    return found


def _told_red(red: list[str], reports: list[TestReport]) -> dict[str, str]:
    """The first line of why each of them failed, where it did in every run."""
    found = {}
    for node_id in red:
        failures = [report.failures.get(node_id) for report in reports]
        if all(failures) and failures[0] is not None:
            found[node_id] = (failures[0].message.strip().splitlines() or [""])[0][:200]
    return found


def _too_red(name: str, reports: list[TestReport], red: list[str], count: int) -> str:
    if not red:
        return f"all {count} tests of {name} are skipped here: choose another repository"
    told = next((r.failures[red[0]].message for r in reports if red[0] in r.failures), "")
    reason = f" ({told.strip().splitlines()[0]})" if told.strip() else ""
    return (
        f"{len(red)} of {count} tests of {name} fail before any change, first {red[0]}{reason}: "
        "make them pass, or choose others with [tool.tadpole] test_paths in its pyproject.toml"
    )


def last_line(text: str) -> str:
    """The line of an output that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E  ") or "rror" in line]
    return ((errors or lines or ["no reason given"])[-1]).removeprefix("E").strip()


def _index(covered: LineCoverage, stable: list[str]) -> dict[str, Any]:
    """Coverage by stable tests alone, numbered in suite order."""
    place = {node_id: index for index, node_id in enumerate(stable)}
    moved = [place.get(node_id, -1) for node_id in covered.ids]
    sets: dict[tuple[int, ...], int] = {}
    lines: dict[str, Mapping[int, int]] = {}
    groups = [tuple(sorted({moved[i] for i in group} - {-1})) for group in covered.sets]
    for path in sorted(covered.lines):
        found = {
            line: sets.setdefault(groups[group], len(sets))
            for line, group in sorted(covered.lines[path].items())
            if groups[group]
        }
        if found:
            lines[path] = found
    imported = {path: sorted(found) for path, found in covered.imported.items()}
    return {"sets": [list(group) for group in sets], "lines": lines, "imported": imported}


def write(place: Path, data: bytes) -> None:
    """Keep a measured baseline in a snapshot's directory."""
    (place / "baseline.json").write_bytes(data)
