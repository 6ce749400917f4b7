"""Which files of an agent are taken into grading."""

import pytest
from calc_task import BASE, new_task

from tadpole.grading.filter import DropReason, installed_modules, split
from tadpole.task import FileChange, Recipe


def reasons(paths, task=None, tree=BASE, installed=("six",)):
    def in_tree(path):
        return any(known == path or known.startswith(f"{path}/") for known in tree)

    delta = [FileChange(path, b"") for path in paths]
    parts = split(task or new_task(), delta, in_tree=in_tree, installed=installed)
    assert len(parts.accepted) + len(parts.dropped) == len(delta)
    return {drop.path: drop.reason for drop in parts.dropped}


DROPPED = {
    DropReason.OUTSIDE: [
        "/etc/passwd",
        "../x.py",
        "calc/../../x",
        "./calc/core.py",
        "a//b",
        "",
        "x/",
    ],
    DropReason.GIT: [".git/config", "calc/.git/hooks/pre-commit", "vendor/.GIT/config"],
    DropReason.HIDDEN_TEST: ["tests/test_core.py", "tests/test_core.py/__init__.py", "tests"],
    DropReason.PYTEST: [
        "conftest.py",
        "calc/conftest.py",
        "tests/conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "tox.ini",
        "setup.cfg",
        "calc/pytest.ini",
    ],
    DropReason.TEST: [
        "tests/test_classic.py",
        "tests/test_new.py",
        "tests/helpers.py",
        "tests/data/x.json",
        "tests/pyproject.toml",
    ],
    DropReason.STARTUP: ["sitecustomize.py", "usercustomize/__init__.py", "evil.pth"],
    DropReason.METADATA: ["calc.egg-info/entry_points.txt", "x-1.dist-info/METADATA"],
    DropReason.COMPILED: ["calc/__pycache__/core.cpython-311.pyc", "calc/core.pyc", "calc/core.so"],
    DropReason.SHADOW: [
        "pytest.py",
        "_pytest/x.py",
        "json.py",
        "unittest/__init__.py",
        "six.py",
        "random/__init__.py",
        "iniconfig.py",
    ],
}


@pytest.mark.parametrize("reason", DROPPED)
def test_dropped(reason):
    assert reasons(DROPPED[reason]) == dict.fromkeys(DROPPED[reason], reason)


def test_legitimate_work_survives():
    paths = [
        *("calc/core.py", "calc/new.py", "calc/deep/__init__.py", "newpackage/__init__.py"),
        *("pyproject.toml", "setup.py", "README.md", "docs/conf.py", "data/blob.bin", "run.sh"),
        *(".gitignore", ".gitattributes", ".github/workflows/ci.yml", "calc/json.py"),
        *("calc/testing.py", "examples/test_like.py", "test_tools/x.py", "json/schema.json"),
        *("caf\u00e9 au lait.txt", "bad\udcff", "contest.py", "new\nline.py"),
    ]
    assert reasons(paths) == {}


def test_deletions_follow_the_same_rules():
    delta = [FileChange("tests/test_classic.py", None), FileChange("old.txt", None)]
    parts = split(new_task(), delta, in_tree=lambda path: True)
    assert [change.path for change in parts.accepted] == ["old.txt"]
    assert [drop.reason for drop in parts.dropped] == [DropReason.TEST]


def test_a_repository_that_has_a_name_of_the_standard_library_keeps_it():
    tree = ["calendar/__init__.py", "queue.py", "src/types/__init__.py"]
    task = new_task(recipe=Recipe(packages=("statistics",), import_paths=("src",)))
    paths = [*tree, "calendar/new.py", "statistics/__init__.py", "src/statistics.py"]
    assert reasons(paths, task, tree) == {}
    assert reasons(["src/json.py", "json.py"], task, tree).keys() == {"src/json.py", "json.py"}


def test_tests_inside_a_package_do_not_take_its_source_with_them():
    task = new_task(
        recipe=Recipe(packages=("pkg",), test_paths=("pkg",)),
        gold=(FileChange("pkg/test/client.py", b""),),
        hidden=(FileChange("pkg/core/tests/test_a.py", b""),),
        fail_to_pass=("pkg/core/tests/test_a.py::test",),
        pass_to_pass=("pkg/test_b.py::test", "pkg/test/test_c.py::test"),
    )
    assert reasons(["pkg/core/new.py", "pkg/test/client.py", "pkg/test/new.py"], task) == {}
    dropped = ["pkg/core/tests/helpers.py", "pkg/test_b.py", "pkg/test/test_c.py"]
    assert reasons(dropped, task) == dict.fromkeys(dropped, DropReason.TEST)


def test_installed_modules_are_read_from_the_environment(tmp_path):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in (
        "six.py",
        "attr",
        "fast.cpython-311-x86_64-linux-gnu.so",
        "six-1.dist-info",
        "a.pth",
    ):
        (site / name).mkdir(parents=True)
    assert installed_modules(tmp_path) == frozenset()  # an interpreter, whose packages are hidden
    installed_modules.cache_clear()
    (tmp_path / "pyvenv.cfg").touch()
    assert installed_modules(tmp_path) == {"six", "attr", "fast"}
    assert installed_modules(tmp_path / "none") == frozenset()
