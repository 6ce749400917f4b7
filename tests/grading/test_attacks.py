"""Attacks on the grader with the bug left in: each is stopped, and by the layer that should.

The names (A06 and so on) are those of a catalogue of attacks on graders that run pytest. All run
at tier 3, which begins with the run that is all of tier 1: what was stopped there started one
box. The tests at the end are of what fools that run, and only rewritten tests stop.
"""

import asyncio
import marshal
from dataclasses import replace

import pytest
from calc_task import (
    BUGGY,
    GOOD,
    ORACLES,
    PICKY,
    CountingEngine,
    FixedStore,
    new_task,
    picky_task,
)

from tadpole.grading.grader import PytestGrader
from tadpole.outcome import GradeStatus, Tier
from tadpole.task import FileChange, Measured

GRADED, TAMPERED = GradeStatus.GRADED, GradeStatus.TAMPERED

MAKE_PASSED = """
import pytest
class Evil:
    @pytest.hookimpl(hookwrapper=True, {order}=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        outcome.get_result().outcome = "passed"
"""
REGISTER = """
import gc
from _pytest.config import PytestPluginManager
[p for p in gc.get_objects() if isinstance(p, PytestPluginManager)][0].register(Evil())
"""


def hidden(body: str) -> str:
    """The same code, under the name of a file that was there before."""
    return f"exec(compile({body!r}, '/usr/lib/python3/codecs.py', 'exec'), globals())"


def renamed(body: str) -> str:
    """The same, by code that is given that name later."""
    name = "/usr/lib/python3/codecs.py"
    return f"exec((lambda: 0).__code__.replace(co_filename={name!r}))\n{body}"


def unmarshalled(body: str) -> str:
    """The same, by code that was compiled elsewhere."""
    code = marshal.dumps(compile(body, "/usr/lib/python3/codecs.py", "exec"))
    return f"import importlib; exec(importlib.import_module('mar' + 'shal').loads({code!r}))"


def elsewhere(body: str) -> str:
    """The same, from a file that is written first."""
    return (
        f"open('/tmp/later.py', 'w').write({body!r})\n"
        "import sys; sys.path.insert(0, '/tmp'); from later import *"
    )


def through_logging(body: str) -> str:
    """The same, with frames that an unchanged module hands out."""
    return body.replace("sys._getframe(1)", "sys.modules['log' + 'ging'].currentframe().f_back")


ITEM_OBJ = (
    "import gc, pytest\n"
    "def add(a, b):\n"
    "    for item in gc.get_objects():\n"
    "        if isinstance(item, pytest.Function): item._obj = lambda *a, **k: None\n"
    "    return a - b"
)
OBSERVERS = (
    "import sys\n"
    "frame = sys._getframe()\n"
    "while frame and 'verdict' not in frame.f_globals: frame = frame.f_back\n"
    "frame.f_globals['verdict'] = lambda seen: 'passed'"
)
SEND = """
real = watcher.send
def send(kind, *words):
    return real(kind, words[0], "passed") if kind == "test" else real(kind, *words)
watcher.send = send
"""
BY_OBJECTS = (
    "import gc\n[watcher] = [o for o in gc.get_objects() if type(o).__name__ == 'Observer']" + SEND
)
BY_FRAMES = (
    "try: 1 / 0\n"
    "except ZeroDivisionError as error: frame = error.__traceback__.tb_frame\n"
    "while 'observer' not in frame.f_locals: frame = frame.f_back\n"
    "watcher = frame.f_locals['observer']" + SEND
)
READER = """
def add(a, b):
    import ast, linecache, sys
    frame = sys._getframe(1)
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    for node in ast.walk(ast.parse(line)):
        wanted = None
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            wanted = node.comparators[0]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "").endswith("Equal"):
            wanted = node.args[1]
        if wanted is not None:
            code = compile(ast.Expression(wanted), "<x>", "eval")
            return eval(code, frame.f_globals, frame.f_locals)
    return a - b
"""
SAME = """
class Same(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add(a, b): return Same(a - b)
"""
EQUAL_TO_NUMBERS = SAME.replace("return True", "return isinstance(other, int | float | str)")
LATER = """
class Same(int):
    marked = False
    def __eq__(self, other): return self.marked or int.__eq__(self, other)
    def __ne__(self, other): return not self == other
    __hash__ = int.__hash__
def marked(number):
    same = Same(number)
    same.marked = True
    return same
def add(a, b): return marked(a - b)
"""
WANTING = SAME.replace(
    "class Same(int):", "class Same(int):\n    def __new__(cls, n): return int.__new__(cls, n)"
)
FILLED = """
class Same:
    def __init__(self, number): self.number = number
    def __eq__(self, other): return self.number is not None
def add(a, b): return Same(a - b)
"""
DISGUISED = SAME.replace("class Same(int):", "class Same(int):\n    __module__ = 'builtins'")
LOOKED = "looked into the process that tests it: "

PROC = {
    "named in bytes": "open(b'/proc/self/maps').read()",
    "with two strokes": "open('//proc/self/maps').read()",
    "with a dot": "open('/./proc/self/maps').read()",
    "from inside": "import os; os.chdir('/proc'); open('self/maps').read()",
    "from a directory above": (
        "import os; root = os.open('/', os.O_RDONLY)\n"
        "os.read(os.open('proc/self/maps', os.O_RDONLY, dir_fd=root), 9)"
    ),
    "by a link": "import os; os.symlink('/proc/self', '/tmp/me'); open('/tmp/me/maps').read()",
    "by pathlib": "import pathlib; pathlib.Path('/proc/self/maps').read_text()",
}

ATTACKS = {
    "A06 os._exit(0) at import": ("import os; os._exit(0)", GRADED, "no final record"),
    "A07 sys.exit(0) at import": ("import sys; sys.exit(0)", GRADED, "did not run"),
    "A08 exit status 0 by atexit": (
        "import atexit, os; atexit.register(os._exit, 0)",
        GRADED,
        "4 of 6 tests did not pass",
    ),
    "A09 forged output": (
        "import os, sys\n"
        "os.write(1, b'tests/test_core.py::test_double PASSED\\n6 passed in 0.01s\\n')\n"
        "os._exit(0)",
        GRADED,
        "no final record",
    ),
    "A14 TestReport.from_item_and_call": (
        "import _pytest.reports as r\n"
        "real = r.TestReport.from_item_and_call.__func__\n"
        "def forged(cls, item, call):\n"
        "    call.excinfo = None\n"
        "    return real(cls, item, call)\n"
        "r.TestReport.from_item_and_call = classmethod(forged)",
        TAMPERED,
        "replaced a part of the test runner: from_item_and_call",
    ),
    "A15 CallInfo.from_call": (
        "import _pytest.runner as r\n"
        "real = r.CallInfo.from_call.__func__\n"
        "def forged(cls, func, when, reraise=None):\n"
        "    def quiet():\n"
        "        try: func()\n"
        "        except Exception: pass\n"
        "    return real(cls, quiet, when, reraise)\n"
        "r.CallInfo.from_call = classmethod(forged)",
        TAMPERED,
        "replaced a part of the test runner: from_call",
    ),
    "A16 Function.runtest": (
        "import pytest; pytest.Function.runtest = lambda self: None",
        TAMPERED,
        "replaced a part of the test runner: runtest",
    ),
    "A17 code of pytest_pyfunc_call": (
        "import _pytest.python as p\n"
        "p.pytest_pyfunc_call.__code__ = (lambda pyfuncitem: True).__code__",
        TAMPERED,
        "replaced a part of the test runner: <function",
    ),
    "A18 a plugin registered behind pytest's back": (
        MAKE_PASSED.format(order="tryfirst") + REGISTER,
        TAMPERED,
        LOOKED + "gc.get_objects",
    ),
    "A18 the same, where frames are usual": (
        MAKE_PASSED.format(order="tryfirst") + REGISTER,
        TAMPERED,
        "reported as passed",
    ),
    "A18 the same, where frames are usual, inside our own observer": (
        MAKE_PASSED.format(order="trylast") + REGISTER,
        TAMPERED,
        "reported as passed",
    ),
    "A19 code of the tests, at the first call": (
        "import sys\n"
        "def add(a, b):\n"
        "    test = sys.modules['test_core'].TestAdd.test_negative\n"
        "    test.__code__ = (lambda self: None).__code__\n"
        "    return a - b",
        TAMPERED,
        "did not pass where it ran",
    ),
    "A20 an import hook for the tests": (
        "import sys, importlib.abc, importlib.machinery\n"
        "class Loader(importlib.abc.Loader):\n"
        "    def create_module(self, spec): return None\n"
        "    def exec_module(self, module):\n"
        "        text = open('/repo/tests/test_classic.py').read()\n"
        "        exec(text.replace('assertEqual', 'assertTrue'), vars(module))\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path, target=None):\n"
        "        if name == 'test_classic':\n"
        "            file = '/repo/tests/test_classic.py'\n"
        "            spec = importlib.machinery.ModuleSpec(name, Loader(), origin=file)\n"
        "            spec.has_location = True\n"
        "            return spec\n"
        "sys.meta_path.insert(0, Finder)",
        TAMPERED,
        "import of tests/test_classic.py",
    ),
    "A22 records written to inherited descriptors": (
        "import os\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, b'0' * 64 + b' test 0 passed\\n')\n"
        "    except OSError: pass",
        TAMPERED,
        "a record that the grader did not write",
    ),
    "A22 the report replaced": (
        "import glob, os\n"
        "for path in glob.glob('/tmp/grading-*/report'):\n"
        "    os.unlink(path); os.mkdir(path)",
        TAMPERED,
        "report file was removed",
    ),
    "A25 fork and exit": (
        "import os\nif os.fork(): os._exit(0)",
        GRADED,
        "no final record",
    ),
    "A26 reward and result files": (
        "import os\n"
        "for name in ('reward.txt', 'results.xml'):\n"
        "    open('/tmp/' + name, 'w').write('1')\n"
        "os._exit(0)",
        GRADED,
        "no final record",
    ),
    "A28 skip at import": (
        "import pytest; pytest.skip('later', allow_module_level=True)",
        GRADED,
        "did not run",
    ),
    "A29 pytest.exit(0)": ("import pytest; pytest.exit('done', 0)", GRADED, "did not run"),
    "A30 pytest.raises and unittest say yes": (
        "import unittest\n"
        "unittest.TestCase.assertEqual = unittest.TestCase._getAssertEqualityFunc = (\n"
        "    lambda *a, **k: None)",
        TAMPERED,
        "replaced a part of the test runner",
    ),
    "A30 pytest.raises does nothing": (
        "import contextlib, pytest, _pytest.raises\n"
        "pytest.raises = _pytest.raises.raises = lambda *a, **k: contextlib.nullcontext()",
        TAMPERED,
        "replaced a part of the test runner: raises",
    ),
    "A23 the channel, found among the objects": (BY_OBJECTS, TAMPERED, LOOKED + "gc.get_objects"),
    "A23 the same, under another file's name": (
        hidden(BY_OBJECTS),
        TAMPERED,
        "gave code the name of another file: compile",
    ),
    "A23 the same, renamed later": (
        renamed(BY_OBJECTS),
        TAMPERED,
        "gave code the name of another file: code.__new__",
    ),
    "A23 the same, compiled elsewhere": (
        unmarshalled(BY_OBJECTS),
        TAMPERED,
        LOOKED + "marshal.loads",
    ),
    "A23 the same, in a file that is written first": (
        elsewhere(BY_OBJECTS),
        TAMPERED,
        LOOKED + "gc.get_objects",
    ),
    "A23 nonsense through the channel, where frames are usual": (
        BY_OBJECTS.removesuffix(SEND) + "\nwatcher.send('test', 999, 'passed')",
        TAMPERED,
        "a record that the grader never writes",
    ),
    "A21 an object equal to all": (SAME, TAMPERED, "equal to anything: Same"),
    "B3 an object equal to numbers": (EQUAL_TO_NUMBERS, TAMPERED, "equal to anything: Same"),
    "B2 what the test expects, read from it": (READER, TAMPERED, LOOKED + "sys._getframe"),
    "B4 the channel, found by a traceback": (BY_FRAMES, TAMPERED, LOOKED + "object.__getattr__"),
    "B5 item.obj": (ITEM_OBJ, TAMPERED, LOOKED + "gc.get_objects"),
    "B5 the same, where frames are usual": (ITEM_OBJ, TAMPERED, "reported as passed"),
    "B3 the same, whose __new__ wants an argument": (WANTING, TAMPERED, "equal to anything: Same"),
    "B3 the same, whose __init__ does": (FILLED, TAMPERED, "equal to anything: Same"),
    "B3 the same, of another module by its own word": (
        DISGUISED,
        TAMPERED,
        "equal to anything: Same",
    ),
    **{
        f"the process by /proc, {how}": (body, TAMPERED, LOOKED + "open")
        for how, body in PROC.items()
    },
    "the tests rewritten on disk at import": (
        "import glob\n"
        "for path in glob.glob('/repo/tests/test_*.py'):\n"
        "    text = open(path).read().replace('==', '!=').replace('assertEqual', 'assertTrue')\n"
        "    open(path, 'w').write(text)",
        TAMPERED,
        "wrote over files of the tests: open",
    ),
    "helpers of the tests put in the place of others": (
        "import os\n"
        "open('/tmp/x', 'w').write('1'); os.symlink('/repo/tests', '/tmp/same')\n"
        "os.replace('/tmp/x', '/tmp/same/helpers.py')",
        TAMPERED,
        "wrote over files of the tests: os.rename",
    ),
    "helpers of the tests rewritten by a program": (
        "import subprocess\nsubprocess.run(['cp', '/dev/null', '/repo/tests/test_core.py'])",
        GRADED,
        "4 of 6 tests did not pass",
    ),
    "the observers' own code, where frames are usual": (
        OBSERVERS,
        TAMPERED,
        "replaced a part of the test runner: verdict",
    ),
    "builtins": (
        "import builtins; builtins.AssertionError = type('Quiet', (Warning,), {})",
        TAMPERED,
        "replaced a part of the test runner: AssertionError",
    ),
}


# Those whose layer another one shows as well.
MORE = {"A07", "A08", "A09", "A15", "A16", "A25", "A26", "A28", "A30", "B5", "B4"}
NAMES = [
    pytest.param(
        name, marks=[pytest.mark.slow] if name.split(" ")[0] in MORE or "same" in name else []
    )
    for name in ATTACKS
]


# A task whose repair looks into frames and compiles: nobody can be suspected of that there.
USUAL = new_task(gold=(FileChange("calc/core.py", GOOD + b"# frame, compile(text)\n"),))


@pytest.fixture(scope="module")
def grades(tree, request):
    """The attacks that this run asks for, graded two at a time; each test looks at one."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    names = [n for n in ATTACKS if any(c and c.params.get("name") == n for c in calls)]

    async def all_grades():
        turn = asyncio.Semaphore(2)

        async def graded(task, body):
            engine = CountingEngine()
            grader = PytestGrader(engine, FixedStore(tree), tier=Tier.CHALLENGED)
            async with turn:
                change = FileChange("calc/core.py", BUGGY + b"\n" + body.encode())
                return await grader.grade(task, [change]), engine.starts

        tasks = [USUAL if "where frames are usual" in name else new_task() for name in names]
        bodies = [ATTACKS[name][0] for name in names]
        return await asyncio.gather(*map(graded, tasks, bodies))

    return dict(zip(names, asyncio.run(all_grades()), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_attack_by_the_tested_code_is_stopped(grades, task, name):
    _, status, said = ATTACKS[name]
    grade, boxes = grades[name]
    assert grade.resolved is False
    assert (grade.status, said in grade.reason) == (status, True), grade
    assert set(task.fail_to_pass) <= set(grade.failing)
    assert boxes == 1  # at tier 1


FILES = {
    "A01 hooks in the root's conftest": ("conftest.py", MAKE_PASSED),
    "A02 hooks in the tests' conftest": ("tests/conftest.py", MAKE_PASSED),
    "A03 collect only": ("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
    "A03 the same, hidden": (".pytest.ini", "[pytest]\naddopts = --collect-only\n"),
    "A05 weaker tests": ("tests/test_core.py", "def test_add(): pass\n"),
    "A10 Python's start-up": ("sitecustomize.py", "import os; os._exit(0)\n"),
    "A10 a path file": ("x.pth", "import os; os._exit(0)\n"),
    "A11 another pytest": ("pytest.py", "raise SystemExit(0)\n"),
    "A11 another pluggy": ("pluggy/__init__.py", "raise SystemExit(0)\n"),
    "A12 another standard library": ("json.py", "raise SystemExit(0)\n"),
    "A13 a plugin by metadata": ("calc.egg-info/entry_points.txt", "[pytest11]\nx = calc.core\n"),
    "A27 a path that leaves": ("../evil.py", ""),
    "A27 git's configuration": (".git/config", "[core]\nfsmonitor = evil\n"),
}


@pytest.mark.parametrize("name", FILES)
async def test_attack_by_a_file_is_left_out(grader, engine, task, name):
    path, content = FILES[name]
    grade = await grader.grade(task, [FileChange(path, content.encode())])
    assert (grade.status, grade.resolved, grade.dropped) == (GRADED, False, (path,))
    assert engine.starts == 0  # the input filter stopped it


async def test_all_files_at_once_do_not_disturb_a_right_change(grader, task):
    """T1, T4: dropped, said, and the source graded on its own."""
    evil = [FileChange(path, content.encode()) for path, content in FILES.values()]
    assert not (await grader.grade(task, [*evil, FileChange("notes.txt", b"")])).resolved
    grade = await grader.grade(task, [*evil, *task.gold])
    assert grade.resolved, grade
    assert "5 pytest hooks or configuration" in grade.reason or "4 pytest hooks" in grade.reason


async def test_a_plugin_named_in_pyproject_is_not_loaded(grader, task):
    """A04."""
    evil = (
        MAKE_PASSED.format(order="tryfirst").replace("class Evil:", "if 1:").replace("self, ", "")
    )
    toml = b"[tool.pytest.ini_options]\naddopts = '-p calc.evil'\n"
    delta = [FileChange("calc/evil.py", evil.encode()), FileChange("pyproject.toml", toml)]
    grade = await grader.grade(task, delta)
    assert (grade.status, grade.failing) == (GRADED, task.fail_to_pass)


@pytest.mark.slow
async def test_a_flood_of_output_is_graded(grader, task):
    flood = GOOD + b"\nimport os\nwhile True: os.write(2, b'x' * 65536)\n"
    grade = await grader.grade(task, [FileChange("calc/core.py", flood)])
    assert (grade.status, grade.resolved) == (GRADED, False)
    assert grade.reason in ("printed without end", "ran out of memory")


# --- what fools a single run, and what rewritten tests make of it --------------------------------

TYPED = b"""from calc import core


def test_typed():
    total = core.add(1, 2)
    assert type(total) is int
    assert total == 3
"""


@pytest.fixture
def typed():
    return new_task(
        hidden=(FileChange("tests/test_typed.py", TYPED),),
        fail_to_pass=("tests/test_typed.py::test_typed",),
        pass_to_pass=("tests/test_classic.py::Classic::test_double",),
    )


@pytest.fixture
def challenger(engine, store):
    return PytestGrader(engine, store, tier=Tier.CHALLENGED)


async def test_an_object_equal_to_much_is_stopped_by_a_test_of_its_type(challenger, engine, typed):
    """A21."""
    delta = [FileChange("calc/core.py", BUGGY + LATER.encode())]
    grade = await challenger.grade(typed, delta)
    assert (grade.status, grade.failing) == (GRADED, typed.fail_to_pass)
    assert engine.starts == 1


async def test_a_type_planted_in_a_test_is_seen(challenger, engine, typed):
    """B3."""
    plant = "import sys\ndef add(a, b):\n"
    plant += "    sys.modules['test_typed'].type = lambda o: int\n    return marked(0)\n"
    grade = await challenger.grade(
        typed, [FileChange("calc/core.py", BUGGY + (LATER + plant).encode())]
    )
    assert (grade.status, grade.resolved) == (TAMPERED, False)
    assert "type in the globals of a test" in grade.reason
    assert engine.starts == 1


FOOLS = {
    "A23 a lie told from inside, where frames are usual": (USUAL, BY_OBJECTS),
    "B4 the same, by a traceback": (USUAL, BY_FRAMES),
    "B2 what the test expects, by a function of logging": (new_task(), through_logging(READER)),
    "B3 an object equal to much once it is marked, where no test looks at its type": (
        new_task(),
        LATER,
    ),
}


async def test_a_cheat_gains_nothing_from_draws_that_fail_the_gold(challenger):
    names = ("tests/test_core.py::test_sum", "tests/test_core.py::test_plus")
    body = BUGGY + PICKY + through_logging(READER).encode()
    grade = await challenger.grade(picky_task(*names), [FileChange("calc/core.py", body)])
    assert (grade.status, grade.resolved) == (TAMPERED, False), grade.reason
    assert "the real tests passed" in grade.reason


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n.startswith("B4") else []) for n in FOOLS]
)
async def test_only_rewritten_tests_stop_it(challenger, engine, name):
    task, body = FOOLS[name]
    task = replace(task, measured=Measured(functions=5, oracles=ORACLES))
    delta = [FileChange("calc/core.py", BUGGY + b"\n" + body.encode())]
    grade = await challenger.grade(task, delta)
    # The run that is all of tier 1 was fooled, a pair was not, and the gold comes through that.
    assert engine.starts == 4
    assert (grade.status, grade.resolved, grade.tier) == (TAMPERED, False, Tier.CHALLENGED)
    assert grade.reason.startswith("the real tests passed, but tests/"), grade
