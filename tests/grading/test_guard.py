"""What the tests read is guarded from the change: each attack would pass a wrong one otherwise."""

import shutil
from dataclasses import replace

import pytest
from calc_task import BUGGY, GOOD, FixedStore, new_task

from tadpole.grading.grader import PytestGrader
from tadpole.outcome import GradeStatus
from tadpole.task import FileChange

TAMPERED = GradeStatus.TAMPERED

# Each makes what one of the tests' files says -1, which is what the bug says.
WRITES = {
    "data above": "open('/repo/data/wanted', 'w').write('-1')",
    "a helper above": "open('/repo/support.py', 'w').write('WANTED = -1')",
    "a path object": (
        "import io, pathlib; io.FileIO(pathlib.Path('/repo/tests/wanted'), 'w').write(b'-1')"
    ),
    "os.open below a directory": (
        "import os; tests = os.open('/repo/tests', os.O_RDONLY)\n"
        "os.write(os.open('wanted', os.O_WRONLY | os.O_TRUNC, dir_fd=tests), b'-1')"
    ),
    "os.replace below a directory": (
        "import os; open('/repo/new', 'w').write('-1')\n"
        "tests = os.open('/repo/tests', os.O_RDONLY)\n"
        "os.replace('/repo/new', 'wanted', dst_dir_fd=tests)"
    ),
    "another thread": (
        "import functools, os, threading; open('/repo/new', 'w').write('-1')\n"
        "put = functools.partial(os.replace, '/repo/new', '/repo/tests/wanted')\n"
        "thread = threading.Thread(target=put); thread.start(); thread.join()"
    ),
    "a pool of threads": (
        "import os; from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "open('/repo/new', 'w').write('-1')\n"
        "Pool(1).submit(os.replace, '/repo/new', '/repo/tests/wanted').result()"
    ),
    "a conftest file that was not there": "open('/repo/tests/conftest.py', 'w').write('')",
}
READING = b"""from pathlib import Path
from calc import core


def test_wanted():
    import support

    here = Path(__file__).parent
    files = [here / "wanted", here.parent / "data" / "wanted"]
    assert core.add(1, 2) in [support.WANTED, *(int(file.read_text()) for file in files)]
"""


WEAK = b"def test_other(): pass\n"
WEAKLY = {"fail_to_pass": ("tests/test_classic.py::test_other",), "pass_to_pass": ()}


@pytest.fixture(scope="module")
def read_tree(tree, tmp_path_factory):
    root = tmp_path_factory.mktemp("read") / "tree"
    shutil.copytree(tree, root)
    for path, content in {
        "data/wanted": "3",
        "tests/wanted": "3",
        "support.py": "WANTED = 3",
    }.items():
        (root / path).write_text(content)
    return root


READ = new_task(
    hidden=(FileChange("tests/test_wanted.py", READING),),
    fail_to_pass=("tests/test_wanted.py::test_wanted",),
    pass_to_pass=(),
)


@pytest.mark.parametrize("name", WRITES)
async def test_what_the_tests_read_cannot_be_written_over(engine, read_tree, name):
    change = FileChange("calc/core.py", BUGGY + WRITES[name].encode())
    grade = await PytestGrader(engine, FixedStore(read_tree)).grade(READ, [change])
    assert (grade.status, grade.resolved) == (TAMPERED, False), grade
    assert grade.reason.startswith("the change wrote over files of the tests: "), grade


async def test_code_may_write_where_the_tests_read_nothing(engine, read_tree):
    harmless = (
        b"import os, threading\nopen('/repo/old.txt', 'a').write('more')\n"
        b"thread = threading.Thread(target=os.remove, args=('/repo/run.sh',))\n"
        b"thread.start(); thread.join(); open('/repo/calc/__init__.py', 'a').write('\\n')\n"
    )
    grader = PytestGrader(engine, FixedStore(read_tree))
    grade = await grader.grade(READ, [FileChange("calc/core.py", GOOD + harmless)])
    assert grade.resolved, grade


async def test_tests_are_read_only_to_the_change(engine, tree, tmp_path):
    shutil.copytree(tree, tmp_path / "tree")
    (tmp_path / "tree/conftest.py").write_text("")
    grader = PytestGrader(engine, FixedStore(tmp_path / "tree"))
    files = ["conftest.py", "tests/test_core.py", "tests/test_classic.py"]
    look = f"import os\nassert not [file for file in {files} if os.access(file, os.W_OK)]\n"
    delta = [FileChange("calc/core.py", GOOD + look.encode())]
    for ours in (grader, grader.trusting, grader.trusting):
        assert (await ours.grade(new_task(), delta)).resolved
        delta.append(FileChange("more.txt", b""))  # no grade that was kept
    again = new_task(name="calc-0002", hidden=(FileChange("tests/test_classic.py", WEAK),))
    grade = await grader.trusting.grade(replace(again, **WEAKLY), [*again.gold])
    assert grade.resolved, grade  # put in the place of one that was read-only
