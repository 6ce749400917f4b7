"""Runs the expected tests inside the grading box and reports each over a channel of its own.

A program for the box: standard library and pytest, Python 3.8+. Its source (after those of
:mod:`~tadpole.grading.watch`, :mod:`~tadpole.grading.alarm` and :mod:`~tadpole.grading.guard`) is
given to ``python -c``, so that no file of it lies in the box; the job comes as JSON on standard
input.

Guards against: code under test that wants another verdict and does not know this program. The
work tree comes on ``sys.path`` after pytest and all that it needs is loaded. Test
files and conftest files become read-only, and run from bytes that were read before. Each test is
observed at its function, at pytest's exception record and at the final report, and these must
agree. Functions of pytest, unittest and builtins are compared after each test. Tests that must fail
are mixed in, so a run that turns failures into passes gives itself away. Each record carries a
keyed hash over all records before it, and the exit status is a number that only this run was told.

Does not guard against: code that knows this program and searches the process for the key and
the observers (it runs in the same process, so it can); helpers of the tests that another program is
started to rewrite. No program inside one process can guard against all of it;
:mod:`tadpole.grading.grader` says where a check from outside goes.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import functools
import gc
import hashlib
import hmac
import importlib
import inspect
import json
import operator
import os
import random
import resource
import sys
import typing

import _pytest.assertion.rewrite
import _pytest.config
import _pytest.unittest
import pytest

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tadpole.grading.alarm import equal_to_all, open_alarm
    from tadpole.grading.guard import open_guard, read_tests, used_by
    from tadpole.grading.watch import open_watch, parts_of  # in the box: the same namespace


BUILTINS = frozenset(name for name in vars(builtins) if not name.startswith("_"))


def open_channel(path: str, key: bytes) -> Callable[..., str]:
    """A function that appends one record to the report; nobody else can make a valid one."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    chain = hmac.new(key, digestmod=hashlib.sha256)
    write, own, getpid = os.write, os.getpid(), os.getpid

    def send(*words: object) -> str:
        if getpid() != own:
            return ""  # a test forked, and the child came back here
        text = " ".join(str(word) for word in words).encode("ascii", "backslashreplace")
        text = text.replace(b"\n", b" ")
        chain.update(text + b"\n")
        digest = chain.hexdigest()
        write(fd, digest.encode() + b" " + text + b"\n")
        return digest

    return send


class Seen:
    """What was observed of one test."""

    def __init__(self) -> None:
        self.entered = False
        self.returned = False
        self.swapped = False
        self.line = 0  # of the test file, where an exception left it
        self.expected_call = False  # a test function that has to be entered
        self.made: dict[str, tuple[str, bool]] = {}  # phase -> (outcome, an exception was there)
        self.reported: dict[str, str] = {}  # phase -> status


class Observer:
    """The pytest plugin that selects, mixes in, observes and reports."""

    def __init__(
        self, job: dict[str, typing.Any], send: Callable[..., str], loaded: set[str]
    ) -> None:
        self.expected = {node: number for number, node in enumerate(job["ids"])}
        self.must_fail = list(job["must_fail"])
        self.later: dict[str, str | None] = job["later"]  # the agent's pyproject.toml files
        self.send = send
        self.loaded = loaded
        self.changed: Callable[[], object] = str  # until the watch is open: nothing has changed
        self.random = random.Random(job["seed"])
        self.seen = Seen()
        self.numbers: dict[
            pytest.Item, tuple[str, int]
        ] = {}  # item -> ("test" or "canary", number)
        self.pinned: dict[pytest.Item, list[object]] = {}
        self.told = False
        self.spaces: dict[int, tuple[dict[str, object], frozenset[str]]] = {}  # of the test modules

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self) -> Iterator[None]:
        """Configuration is read, plugins of the environment are loaded; repository code is not."""
        for path, text in self.later.items():
            if text is None:
                os.unlink(path)
            else:
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                with open(path, "wb") as stream:
                    stream.write(base64.b64decode(text))
        self.changed = open_watch()  # not before: plugins may have patched pytest
        yield

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Iterator[None]:
        """Keep the expected ids, once each, and mix in the tests that must fail."""
        yield
        kept: dict[str, pytest.Item] = {}
        for item in items:
            if item.nodeid in self.expected:
                kept.setdefault(item.nodeid, item)
        for node, item in kept.items():
            self.numbers[item] = ("test", self.expected[node])
            space: typing.Any = vars(getattr(item, "module", None) or type(self))
            self.spaces[id(space)] = (space, BUILTINS & space.keys())
            if isinstance(item, pytest.Function):
                self.pinned[item] = parts_of(item.function)
                file = node.split("::", 1)[0]
                if file not in self.loaded and config.getoption("assertmode") == "rewrite":
                    self.tell_change(f"import of {file}")
        mixed = list(kept.values())
        if mixed:
            for number, name in enumerate(self.must_fail):
                self.mix_in(mixed, number, name)
        items[:] = mixed
        self.send("collected", len(kept))
        self.tell_change()

    def mix_in(self, items: list[pytest.Item], number: int, name: str) -> None:
        """Put one failing test between two tests that share no class."""
        gaps = [
            at
            for at in range(len(items) + 1)
            if at in (0, len(items)) or items[at - 1].parent is not items[at].parent
        ]
        at = self.random.choice(gaps)
        beside = items[min(at, len(items) - 1)]
        module = beside.getparent(pytest.Module) or beside.parent

        def body() -> None:
            raise AssertionError(name)

        item = pytest.Function.from_parent(module, name=name, callobj=body)
        self.numbers[item] = ("canary", number)
        self.pinned[item] = parts_of(body)
        items.insert(at, item)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Bracket one test and report it."""
        self.seen = Seen()
        yield
        kind, number = self.numbers[item]
        if kind == "test" and self.seen.line:
            self.send("at", number, self.seen.line)
        self.send(kind, number, verdict(self.seen))
        self.tell_change()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Observe the test function itself, whoever calls it."""
        if isinstance(item, pytest.Function):
            self.observe(item)
        yield

    def observe(self, item: pytest.Function) -> None:
        """Put a wrapper around the function that is about to be called."""
        seen, function, pinned = self.seen, item.obj, self.pinned[item]
        now = parts_of(function)
        seen.expected_call = True
        seen.swapped = len(now) != len(pinned) or not all(map(operator.is_, now, pinned))
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: typing.Any, **kwargs: typing.Any) -> object:
                seen.entered, seen.returned = True, False
                result = await function(*args, **kwargs)
                seen.returned = True
                return result

            item.obj = awaited
            if isinstance(item, _pytest.unittest.TestCaseFunction):
                # Here pytest leaves the call to unittest, which looks at the instance.
                setattr(function.__self__, item.name, awaited)
        else:

            @functools.wraps(function)
            def watched(*args: typing.Any, **kwargs: typing.Any) -> object:
                seen.entered, seen.returned = True, False
                result = function(*args, **kwargs)
                seen.returned = True
                return result

            item.obj = watched

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: typing.Any) -> Iterator[None]:
        """See the exception record and the report made of it."""
        outcome: typing.Any = yield
        self.seen.made[call.when] = (outcome.get_result().outcome, call.excinfo is not None)
        if call.when == "call" and call.excinfo is not None:
            here = [at for at in call.excinfo.traceback if str(at.path) == str(item.path)]
            self.seen.line = here[-1].lineno + 1 if here else 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: typing.Any) -> None:
        """See the final report; the worst one of a phase counts."""
        status = report.outcome
        if hasattr(report, "wasxfail"):
            status = "xpassed" if report.passed else "xfailed"
        before = self.seen.reported.get(report.when)
        if before in (None, "passed", "rerun"):
            self.seen.reported[report.when] = status

    def tell_change(self, what: object = "") -> None:
        """Say once that something was replaced."""
        what = what or self.changed() or self.shadow()
        if what and not self.told:
            self.told = True
            self.send("changed", what)

    def shadow(self) -> str:
        """A name of builtins that a test module has not had before, or ""."""
        for space, before in self.spaces.values():
            if not before >= (found := BUILTINS & space.keys()):
                return "{} in the globals of a test".format(*sorted(found - before))
        return ""


def verdict(seen: Seen) -> str:
    """One status from all observations, or "contradiction"."""
    phases = [seen.reported.get(when) for when in ("setup", "call", "teardown")]
    if phases == ["passed", "passed", "passed"]:
        honest = all(made == ("passed", False) for made in seen.made.values())
        called = not seen.expected_call or (seen.entered and seen.returned and not seen.swapped)
        return "passed" if honest and called and len(seen.made) == 3 else "contradiction"
    if "failed" in (phases[0], phases[2]):
        return "error"
    for status in ("failed", "xfailed", "xpassed", "skipped"):
        if status in phases:
            return status
    return "error"


class Pinned:
    """A test file whose content was read before any code of the repository ran."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self.content = content

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    def read_bytes(self) -> bytes:
        """What pytest compiles."""
        return self.content


def pin_tests(root: str, tests: dict[str, bytes | None]) -> set[str]:
    """Make pytest run the test files and their conftest files from the bytes they had before.

    The files themselves become read-only. The set that is returned fills with those loaded so.
    """
    loaded: set[str] = set()
    contents = {path: content for path, content in tests.items() if content is not None}
    for path in contents:
        with contextlib.suppress(OSError):
            os.chmod(path, os.stat(path).st_mode & ~0o222)
    rewriting: typing.Any = _pytest.assertion.rewrite
    rewrite = rewriting._rewrite_test

    def from_bytes(path: typing.Any, config: typing.Any) -> typing.Any:
        content = contents.get(str(path))
        if content is not None:
            loaded.add(os.path.relpath(str(path), root))
        return rewrite(path if content is None else Pinned(str(path), content), config)

    rewriting._rewrite_test = from_bytes
    rewriting._read_pyc = lambda *args, **options: None
    return loaded


def main() -> None:
    """Read the job, run pytest, leave with the status that the job names."""
    pieces = iter(functools.partial(os.read, 0, 1 << 16), b"")
    job = json.loads(b"".join(pieces))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for name in _pytest.config.default_plugins:
        importlib.import_module("_pytest." + name)
    gc.freeze()  # none of it is garbage: not looked through again
    gc.enable()
    root = os.getcwd()
    os.mkdir(job["directory"], 0o700)
    send = open_channel(os.path.join(job["directory"], "report"), bytes.fromhex(job.pop("key")))
    status, leave = job.pop("status"), os._exit
    # Of processor time: a busy machine does not make a test run too long.
    resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"] + 2))
    tests = read_tests(root, job["ids"])
    loaded = pin_tests(root, tests)
    args = [*job["args"], *dict.fromkeys(node.split("::", 1)[0] for node in job["ids"])]
    os.environ.update(job["env"])
    observer = Observer(job, send, loaded)
    busy: set[int] = set()
    used = used_by(root, tests, job["changed"])
    open_guard(job["changed"], used, functools.partial(send, "wrote"), busy)
    open_alarm(job["suspects"], job["makers"], tests, functools.partial(send, "alarm"), busy)
    # From here on the code of the repository may run: a failure before is ours, not its.
    os.write(1, b"tadpole " + send("ready").encode() + b"\n")
    sys.path[:0] = job["paths"]
    sys.argv[:] = ["pytest", *args]
    try:
        code: object = int(pytest.main(args, plugins=[observer]))
    except BaseException as error:
        code = type(error).__name__
    observer.tell_change()
    equal = equal_to_all(job["equals"])
    if equal:
        send("equal", equal)
    send("end", code)
    leave(status)


main()
