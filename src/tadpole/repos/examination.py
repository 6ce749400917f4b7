"""Looks at a repository as task making would, and says in words what is wrong with it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tadpole.errors import NetworkError, SandboxError, TadpoleError
from tadpole.outcome import TestStatus
from tadpole.repos import files
from tadpole.repos.baseline import last_line
from tadpole.repos.recipe import Origin, origin, recipe_for
from tadpole.repos.snapshot import Baseline, Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import run_tests, with_reporter
from tadpole.task import Recipe

SLOW_SUITE = 60.0  # seconds of one run of the suite: every task needs one
SLOW_TEST = 5.0  # seconds of one test
FEW_FUNCTIONS = 20
_SHOWN = 3


@dataclass(frozen=True)
class Remark:
    """One thing that was looked at. ``fix`` says what to change; with ``ok`` it may stay."""

    name: str
    ok: bool
    detail: str
    fix: str = ""

    @property
    def mark(self) -> str:
        """Three letters for a person."""
        return "BAD" if not self.ok else "tip" if self.fix else "ok "


async def examine(store: Store, source_text: str) -> AsyncIterator[Remark]:
    """Every step of a snapshot, until one does not hold.

    Raises SourceError where there is nothing to look at, NetworkError, SandboxError.
    """
    found, tree = await store.fetched(source_text)
    here = files.from_directory(tree)
    yield Remark(
        "source", True, f"{found.kind} {found.location} {found.version}, {len(here)} files"
    )
    if found.kind == "directory":
        for remark in _astray(Path(found.location)):
            yield remark
    step = "recipe"
    try:
        head = await store.head(found)
        recipe = recipe_for(found.kind, found.location, here, head)
        yield _recipe(origin(found.kind, found.location, here, head), recipe)
        step = "environment"
        found, built, tree = await store.built(found, recipe, tree)
        pins = built.recipe.requirements
        yield Remark("environment", True, f"{len(pins)} packages, licence {found.licence or '?'}")
        step = "tests"
        snapshot = await store.measured(found, built, tree)
    except (NetworkError, SandboxError):
        raise
    except TadpoleError as error:
        yield Remark(step, False, str(error))  # says itself what to do
        return
    yield Remark("imports", True, f"{', '.join(recipe.packages)} from the checkout")
    for remark in _tests(snapshot.baseline):
        yield remark
    yield _code(snapshot.baseline)
    yield await _alone(store, snapshot)


def _astray(root: Path) -> list[Remark]:
    found = files.astray(root)
    if not found:
        return []
    told = tuple(f"{path} ({why.value})" for path, why in sorted(found.items()))
    return [
        Remark("left out", True, _some(told), "put files in their place, where tests need them")
    ]


def _recipe(by: Origin, recipe: Recipe) -> Remark:
    told = [
        f"tests in {', '.join(recipe.test_paths)}",
        *([f"packages {', '.join(recipe.packages)}"] if recipe.packages else []),
        *([f"needs {', '.join(recipe.requirements)}"] if recipe.requirements else []),
        *([f"pytest {' '.join(recipe.pytest_args)}"] if recipe.pytest_args else []),
    ]
    return Remark("recipe", True, f"{by.value}: {'; '.join(told)}")


def _tests(baseline: Baseline) -> list[Remark]:
    told = f"{len(baseline.stable)} of {baseline.collected} pass in all runs"
    slow = baseline.suite_seconds > SLOW_SUITE
    remarks = [
        Remark(
            "tests",
            True,
            f"{told}; {baseline.suite_seconds:.1f} s a run",
            "every task needs one run: choose a quicker part with [tool.tadpole] test_paths"
            if slow
            else "",
        )
    ]
    flaky = baseline.aside["flaky"]
    if flaky:
        remarks.append(
            Remark("flaky", True, _some(flaky), "no task uses them: make them say the same always")
        )
    if baseline.red:
        first, why = next(iter(baseline.red.items()))
        text = f"{_some(tuple(baseline.red))} (the first: {why or first})"
        remarks.append(Remark("failing", True, text, "no task uses them: make them pass"))
    slowest = max(baseline.seconds.items(), key=lambda item: item[1])
    if slowest[1] > SLOW_TEST:
        remarks.append(
            Remark(
                "slowest",
                True,
                f"{slowest[0]} takes {slowest[1]:.1f} s",
                "leave it out with [tool.tadpole] pytest_args",
            )
        )
    return remarks


def _code(baseline: Baseline) -> Remark:
    paths = [path for path in baseline.files if path.endswith(".py")]
    count = sum(len(baseline.functions(path)) for path in paths)
    detail = f"{count} functions in {len(paths)} files are run by tests"
    if not count:
        fix = "no test runs a function of it: set [tool.tadpole] packages and import_paths"
        return Remark("code", False, detail, fix)
    few = f"expect few tasks from fewer than {FEW_FUNCTIONS}" if count < FEW_FUNCTIONS else ""
    return Remark("code", True, detail, few)


async def _alone(store: Store, snapshot: Snapshot) -> Remark:
    """Whether each test file runs without the others, as the tests of a task do.

    Some find a module only as another file's directory came into ``sys.path`` before.
    """
    first: dict[str, str] = {}
    for node_id in snapshot.baseline.stable:
        first.setdefault(node_id.partition("::")[0], node_id)
    broken: list[str] = []
    box = await store.engine.start(with_reporter(store.box(snapshot)))
    try:
        for path, node_id in first.items():
            python = store.python(snapshot)
            ran = await run_tests(box, snapshot.recipe, python, [node_id], maxfail=1)
            if ran.statuses[node_id] is TestStatus.MISSING:
                why = next(map(last_line, ran.collection_errors.values()), "it runs no test")
                broken.append(f"{path} ({why})")
    finally:
        await box.close()
    if not broken:
        return Remark("alone", True, f"each of {len(first)} test files runs without the others")
    told = f"{len(broken)} of {len(first)} test files do not run without the others"
    paths = ", ".join(f'"{path}"' for path in snapshot.recipe.import_paths)
    fix = (
        "no task uses them: name the directory that they import from in its pyproject.toml, "
        f'[tool.tadpole] import_paths = [{paths}, "..."]'
    )
    return Remark("alone", True, f"{told}: {_some(tuple(broken))}", fix)


def _some(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"{', '.join(ids[:_SHOWN])}{more}"
