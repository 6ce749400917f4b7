"""A snapshot: one repository state, the environment it runs in, and what its tests do there.

All of it lies in the cache and is read-only by convention. Paths of files are relative to the
work directory, with forward slashes; lines are numbered from 1; durations are seconds.
"""

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tadpole.syntax import parse
from tadpole.task import Recipe, Source


@dataclass(frozen=True)
class CoveredFunction:
    """An outermost function or method that at least one stable test runs into."""

    path: str
    name: str  # qualified in its module: "Class.method"
    first: int  # line of its ``def`` or first decorator
    last: int
    lines: tuple[int, ...]  # its lines that tests execute, the ``def`` line never among them
    tests: tuple[str, ...]  # stable ids that execute at least one of them, in suite order


@dataclass(frozen=True)
class Baseline:
    """What the test suite does on the pristine tree. Read from its file on first use.

    Only source files are covered, never tests; only lines executed while a test ran count, so
    lines that run at import alone are absent.
    """

    file: Path  # JSON written by tadpole.repos.baseline
    tree: Path

    @cached_property
    def _data(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.file.read_bytes())
        return data

    @cached_property
    def stable(self) -> tuple[str, ...]:
        """Ids that passed in every run, in suite order."""
        return tuple(self._data["stable"])

    @cached_property
    def collected(self) -> int:
        """How many tests the suite has."""
        return int(self._data["collected"])

    @cached_property
    def aside(self) -> Mapping[str, tuple[str, ...]]:
        """Ids that never decide, by why: "flaky", "skipped", "xfailed", "xpassed"."""
        kinds = ("flaky", "skipped", "xfailed", "xpassed")
        return {kind: tuple(self._data.get(kind, ())) for kind in kinds}

    @cached_property
    def red(self) -> Mapping[str, str]:
        """Ids that failed in every run, each with the first line of why."""
        return dict(self._data.get("red", {}))

    @cached_property
    def seconds(self) -> Mapping[str, float]:
        """Duration of each stable test, set-up and tear-down included."""
        return dict(zip(self.stable, self._data["seconds"], strict=True))

    @cached_property
    def suite_seconds(self) -> float:
        """Wall time of one run of the whole suite without coverage, start of pytest included."""
        return float(self._data["suite_seconds"])

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Source files with a covered line, sorted."""
        return tuple(sorted(self._data["lines"]))

    @cached_property
    def _sets(self) -> list[tuple[str, ...]]:
        stable = self.stable
        return [tuple(stable[index] for index in group) for group in self._data["sets"]]

    def lines(self, path: str) -> Mapping[int, tuple[str, ...]]:
        """Covered lines of a source file, each with the stable ids that execute it."""
        found = self._data["lines"].get(path, {})
        return {int(line): self._sets[group] for line, group in found.items()}

    def imported(self, path: str) -> tuple[int, ...] | None:
        """Lines of a source file that ran while no test did, most of them at import.

        None where that is not known: the file was never loaded, or is no source.
        """
        found = self._data.get("imported", {}).get(path)
        return None if found is None else tuple(found)

    def tests_of(self, path: str, lines: Iterable[int] | None = None) -> tuple[str, ...]:
        """Stable ids that execute any of these lines (None: any line), in suite order."""
        found = self._data["lines"].get(path, {})
        wanted = found if lines is None else {str(line) for line in lines} & found.keys()
        groups = {found[line] for line in wanted}
        indices = {index for group in groups for index in self._data["sets"][group]}
        return tuple(self.stable[index] for index in sorted(indices))

    def functions(self, path: str) -> tuple[CoveredFunction, ...]:
        """The covered outermost functions and methods of a source file, in file order."""
        covered = self._data["lines"].get(path, {})
        module = parse((self.tree / path).read_bytes())
        found = []
        for name, node in _functions(module.body, ""):
            last = node.end_lineno or node.lineno
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            inside = tuple(n for n in range(node.lineno + 1, last + 1) if str(n) in covered)
            if inside:
                tests = self.tests_of(path, inside)
                found.append(CoveredFunction(path, name, first, last, inside, tests))
        return tuple(found)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(body: Iterable[ast.stmt], prefix: str) -> Iterable[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(node, part, ()), prefix)


@dataclass(frozen=True)
class Snapshot:
    """A repository that tasks can be made from."""

    key: str  # content hash of tree, runtime and recipe: 64 hex digits
    source: Source
    recipe: Recipe  # its requirements are pinned: the locked environment
    runtime: str  # content hash of the locked environment: 64 hex digits
    tree: Path  # pristine files, no .git, no bytecode
    venv: Path  # on the host; seen in a sandbox at runtime.VENV
    baseline: Baseline

    @property
    def name(self) -> str:
        """A short readable name: "boltons"."""
        return Path(self.source.location.rstrip("/")).name.removesuffix(".git")
