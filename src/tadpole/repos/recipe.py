"""How a repository's tests are run: known, said by the repository itself, or discovered.

A repository may say it in its ``pyproject.toml``; each key left out is discovered, and
``pytest_args`` come after those that are::

    [tool.tadpole]
    import_paths = ["src"]
    packages = ["mylib"]
    test_paths = ["tests"]
    pytest_args = ["-m", "not network"]
    requirements = ["freezegun"]
    env = { TZ = "UTC" }

What the head of a local clone says holds for its other commits too, where they say nothing
themselves; of its paths those that are there. So another head may come to another recipe.
"""

import configparser
import contextlib
import difflib
import re
import shlex
import tomllib
from collections.abc import Container, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from tadpole.errors import SourceError
from tadpole.repos.files import Files
from tadpole.task import Recipe
from tadpole.tomlfile import items, parse_toml, shown, table, texts

_LISTS = ("import_paths", "packages", "test_paths", "pytest_args", "requirements")
_NOT_UNDER_TEST = re.compile(
    r"(tests?|testing|docs?|examples?|benchmarks?|bench|scripts?|tools|setup|conftest|noxfile"
    r"|tasks|fabfile|versioneer|test_.*|.*_test|\..*)"
)
_TEST_FILE = re.compile(r"(test_[^/]*|[^/]*_test|tests?)\.py")
_TEST_EXTRAS = ("test", "tests", "testing")
# Options in a suite's own configuration that pytest does not know by itself.
_PLUGINS = {
    "--cov": "pytest-cov",
    "--benchmark": "pytest-benchmark",
    "--timeout": "pytest-timeout",
    "--dist": "pytest-xdist",
    "-n": "pytest-xdist",
    "--numprocesses": "pytest-xdist",
    "--asyncio-mode": "pytest-asyncio",
    "asyncio_mode": "pytest-asyncio",
    "--randomly": "pytest-randomly",
    "--mypy": "pytest-mypy",
    "--ruff": "pytest-ruff",
    "timeout": "pytest-timeout",
}
# Options of pytest's memory of earlier runs, which no run here has.
_REMEMBERING = re.compile(
    r"--(lf|last-failed|ff|failed-first|nf|new-first|cache-clear|(sw|stepwise)(-skip|-reset)?"
    r"|(lfnf|last-failed-no-failures|cache-show)=.*)"
)
_WITH_VALUE = ("--lfnf", "--last-failed-no-failures")  # in the next word


class Origin(StrEnum):
    """Who says how the tests are run; the first of these that does."""

    SAID = "said by its pyproject.toml"
    HEAD = "said by the pyproject.toml at the head of its clone"
    KNOWN = "known"
    DISCOVERED = "discovered"


@cache
def _known() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))


def release(name: str) -> str:
    """The release of a known library whose suite is known to be stable; else empty."""
    return str(_known().get(name, {}).get("release", ""))


def names() -> tuple[str, ...]:
    """The libraries with a recipe of their own."""
    return tuple(sorted(_known()))


def origin(kind: str, location: str, found: Files, head: Files | None = None) -> Origin:
    """Who says what is not discovered; ``head``: the files at the head of its clone.

    Raises SourceError.
    """
    if _said(_pyproject(found)):
        return Origin.SAID
    if _at_head(head):
        return Origin.HEAD
    return Origin.KNOWN if kind == "pypi" and location in _known() else Origin.DISCOVERED


def recipe_for(kind: str, location: str, found: Files, head: Files | None = None) -> Recipe:
    """The recipe of a source; ``head``: the files at the head of its clone, its pyproject.toml
    at least. Raises SourceError where there are no tests to run."""
    try:
        said, there = _said(_pyproject(found)), _places(found)
        for path in said.get("import_paths", ()):
            if str(PurePosixPath(path)) not in there:
                raise SourceError(
                    f"its [tool.tadpole] import_paths names {path}: it has no such place"
                )
        said = said or _fitting(_at_head(head), there)
        base = discover(found)
    except SourceError as error:
        raise SourceError(f"{location}: {error}") from None
    if kind == "pypi" and location in _known():
        said = {**_known()[location], **said}
    given = {name: tuple(said[name]) for name in _LISTS if name in said}
    env = tuple(sorted((str(k), str(v)) for k, v in said.get("env", {}).items()))
    given["pytest_args"] = (*base.pytest_args, *given.get("pytest_args", ()))
    recipe = replace(base, **given, env=env)
    if not recipe.test_paths:
        raise SourceError(
            f"{location} has no tests that pytest would find: name them in its pyproject.toml, "
            '[tool.tadpole] test_paths = ["..."], or choose another repository'
        )
    return recipe


def _said(project: Mapping[str, Any]) -> dict[str, Any]:
    """What the repository itself says, all of it known and of the right kind."""
    try:
        said = table(table(project, "tool"), "tadpole")
    except ValueError as error:
        raise _odd(error) from None
    for name, value in said.items():
        if name not in (*_LISTS, "env"):
            near = difflib.get_close_matches(name, (*_LISTS, "env"), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_LISTS)}, env"
            raise SourceError(f"its [tool.tadpole] has an unknown key {name}; {hint}")
        held = value.values() if isinstance(value, dict) else value
        right = isinstance(value, dict if name == "env" else list)
        if not right or not all(isinstance(text, str) for text in held):
            kind = "a table of texts" if name == "env" else "a list of texts"
            raise SourceError(f"its [tool.tadpole] {name} is {shown(value)}: make it {kind}")
    return dict(said)


def _at_head(head: Files | None) -> dict[str, Any]:
    """What the head of the clone says; nothing where no parser takes its file (a link is one)."""
    try:
        project = parse_toml(_text(head or {}, "pyproject.toml"))
    except ValueError:
        return {}
    try:
        return _said(project)
    except SourceError as error:
        raise SourceError(f"at the head of the clone {error}") from None


def _places(found: Files) -> set[str]:
    """All files and directories, "." included."""
    return {str(folder) for path in found for folder in (path, *PurePosixPath(path).parents)}


def _fitting(said: Mapping[str, Any], there: Container[str]) -> dict[str, Any]:
    """What the head says, without the paths that are not there."""
    kept = dict(said)
    for name in ("import_paths", "test_paths"):
        if paths := [path for path in kept.pop(name, ()) if str(PurePosixPath(path)) in there]:
            kept[name] = paths
    return kept


def discover(found: Files) -> Recipe:
    """The best guess from the files alone; ``test_paths`` is empty where there are no tests.

    Raises SourceError where a pyproject.toml cannot be read.
    """
    project = _pyproject(found)
    packages = _packages(found, "src/")
    root = "src" if packages else "."
    try:
        options = _pytest_options(project, found)
        return Recipe(
            import_paths=(root,),
            packages=packages or _packages(found, ""),
            test_paths=_test_paths(found, options),
            pytest_args=_forgetting(options),
            requirements=_requirements(project, _ini(found, "setup.cfg"), options),
        )
    except ValueError as error:
        raise _odd(error) from None


def _packages(found: Files, below: str) -> tuple[str, ...]:
    names = set()
    for path in found:
        parts = PurePosixPath(path.removeprefix(below)).parts
        if not path.startswith(below) or not path.endswith(".py"):
            continue
        if len(parts) == 2 and parts[1] == "__init__.py":
            names.add(parts[0])
        elif len(parts) == 1:
            names.add(parts[0].removesuffix(".py"))
    return tuple(sorted(n for n in names if n.isidentifier() and not _NOT_UNDER_TEST.fullmatch(n)))


def _test_paths(found: Files, options: Mapping[str, Any]) -> tuple[str, ...]:
    tests = [path for path in found if _TEST_FILE.fullmatch(PurePosixPath(path).name)]
    said = _words(options, "testpaths")
    if said and all(
        any(t == path or t.startswith(path.rstrip("/") + "/") for t in tests) for path in said
    ):
        return tuple(said)
    folders = {_test_folder(path) for path in tests}
    return tuple(sorted(folder for folder in folders if folder))


def _test_folder(path: str) -> str:
    """The outermost test directory above a test file; the file itself at the top."""
    parts = PurePosixPath(path).parts
    for index, part in enumerate(parts[:-1]):
        if part in ("tests", "test", "testing"):
            return "/".join(parts[: index + 1])
    return path if len(parts) == 1 else ""


def _requirements(
    project: Mapping[str, Any], setup: configparser.ConfigParser, options: Mapping[str, Any]
) -> tuple[str, ...]:
    wanted: list[str] = []
    extras = table(table(project, "project"), "optional-dependencies")
    groups = table(project, "dependency-groups")
    for name in _TEST_EXTRAS:
        wanted += texts(extras, name)
        wanted += _group(groups, name)
        if setup.has_option("options.extras_require", name):
            wanted += setup.get("options.extras_require", name).splitlines()
    words = _words(options, "addopts")
    for sign, plugin in _PLUGINS.items():
        if sign in options or any(word == sign or _starts(word, sign) for word in words):
            wanted.append(plugin)
    kept = (line.strip() for line in wanted)
    return tuple(dict.fromkeys(k for k in kept if k and not k.startswith(("#", "-"))))


def _forgetting(options: Mapping[str, Any]) -> tuple[str, ...]:
    """What a run is given where a suite's own options name the memory of earlier runs."""
    words = _words(options, "addopts")
    values = [word in _WITH_VALUE for word in ["", *words]]
    kept = [
        word
        for word, is_value in zip(words, values, strict=False)
        if not is_value and word not in _WITH_VALUE and not _REMEMBERING.fullmatch(word)
    ]
    if kept == words:
        return ()
    listed = isinstance(options["addopts"], list)
    return "-o", f"addopts={shlex.join(kept) if listed else ' '.join(kept)}"


def _words(options: Mapping[str, Any], name: str) -> list[str]:
    """What pytest takes as one text or as a list of them. Raises ValueError."""
    said = options.get(name, "")
    return said.split() if isinstance(said, str) else texts(options, name)


def _starts(word: str, sign: str) -> bool:
    value = r"[-=]" if sign.startswith("--") else r"(\d+|auto|logical)$"  # -n4
    return re.match(re.escape(sign) + value, word) is not None


def _group(groups: Mapping[str, Any], name: str, depth: int = 0) -> list[str]:
    lines: list[str] = []
    for item in items(groups, name):
        if isinstance(item, str):
            lines.append(item)
            continue
        within = item.get("include-group") if isinstance(item, dict) else None
        if not isinstance(within, str):
            raise ValueError(f"the dependency group {name} holds {shown(item)}, no requirement")
        if depth < 5:
            lines += _group(groups, within, depth + 1)
    return lines


def _pytest_options(project: Mapping[str, Any], found: Files) -> Mapping[str, Any]:
    """What pytest reads: of several files the first that is for it, and no other."""
    for name in ("pytest.toml", ".pytest.toml"):
        if name in found:
            return table(_toml(found, name), "pytest")
    for name in ("pytest.ini", ".pytest.ini"):  # even where they say nothing
        if name in found:
            return _section(found, name, "pytest") or {}
    if said := table(table(project, "tool"), "pytest"):
        return table(said, "ini_options") if "ini_options" in said else said
    options = _section(found, "tox.ini", "pytest")
    return options if options is not None else _section(found, "setup.cfg", "tool:pytest") or {}


def _section(found: Files, name: str, section: str) -> dict[str, str] | None:
    parser = _ini(found, name)
    return dict(parser.items(section)) if parser.has_section(section) else None


def _pyproject(found: Files) -> dict[str, Any]:
    return _toml(found, "pyproject.toml")


def _toml(found: Files, name: str) -> dict[str, Any]:
    try:
        return parse_toml(_text(found, name))
    except ValueError as error:
        raise _odd(error, name) from None


def _odd(error: ValueError, name: str = "pyproject.toml") -> SourceError:
    return SourceError(f"its {name} cannot be read ({error}): correct it")


def _ini(found: Files, name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with contextlib.suppress(configparser.Error):  # pytest will say so if it matters
        parser.read_string(_text(found, name))
    return parser


def _text(found: Files, path: str) -> str:
    change = found.get(path)
    return (change.content or b"").decode("utf-8", "replace") if change else ""
