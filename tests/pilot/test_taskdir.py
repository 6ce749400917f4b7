import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tadpole import process
from tadpole.errors import TaskError
from tadpole.pilot import taskdir
from tadpole.task import FileChange, Hint, Measured, Provenance, Recipe, Source, Task, TaskKind

BUGGY = b"def add(a, b):\n    return a - b\n"
GOLD = BUGGY.replace(b"-", b"+")
HIDDEN = b"""from m import add


def test_add():
    assert add(1, 2) == 3


def test_ok():
    pass
"""


def new_task(**changed) -> Task:
    return Task(
        **{
            "name": "m-0001",
            "kind": TaskKind.BUG_FIX,
            "source": Source("pypi", "m", "1.0", "ab" * 32, "MIT"),
            "snapshot": "0" * 64,
            "runtime": "1" * 64,
            "recipe": Recipe(packages=("m",), requirements=("pytest==9",), env=(("A", "b c"),)),
            "start": (FileChange("m.py", BUGGY, True), FileChange("tests/old.py", None)),
            "gold": (FileChange("m.py", GOLD, True),),
            "hidden": (FileChange("tests/test_m.py", HIDDEN),),
            "fail_to_pass": ("tests/test_m.py::test_add",),
            "pass_to_pass": ("tests/test_m.py::test_ok",),
            "hints": (Hint(0, "It is broken."), Hint(6, "In `m.py` replace `-` with `+`.")),
            "rung": 6,
            "provenance": Provenance("p", "arith_flip", 3, ("m.py",), ("add",)),
            "test_seconds": 20.5,
            **changed,
        }
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PATHS = st.from_regex(r"[a-zé][a-z_ .-]{0,8}[a-z](/[a-z]{1,8}){0,2}", fullmatch=True)
CHANGES = st.lists(
    st.builds(FileChange, PATHS, st.none() | st.binary(max_size=40), st.booleans()),
    max_size=4,
    unique_by=lambda change: change.path.partition("/")[0],
).map(tuple)
IDS = st.lists(TEXT, max_size=4).map(tuple)


@given(
    task=st.builds(
        new_task,
        start=CHANGES,
        gold=CHANGES,
        hidden=CHANGES,
        fail_to_pass=IDS,
        pass_to_pass=IDS,
        hints=TEXT.map(lambda text: (Hint(2, text),)),
        rung=st.just(2),
        recipe=st.builds(Recipe, pytest_args=IDS, env=st.tuples(st.tuples(TEXT, TEXT))),
        test_seconds=st.floats(1, 1000),
        measured=st.builds(
            Measured,
            mutants=st.integers(0, 9),
            oracles=st.none() | st.dictionaries(TEXT, st.integers(0, 1)).map(dict.items).map(tuple),
        ),
    )
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_task_comes_back_equal(tmp_path_factory, task):
    place = taskdir.save(task, tmp_path_factory.mktemp("set"))
    found = taskdir.load(place)
    assert found == task and found.id == task.id and found.test_seconds == task.test_seconds
    assert found.measured == task.measured


def test_the_layout_is_harbors(tmp_path):
    place = taskdir.save(new_task(), tmp_path, calibration={"policy": "p", "passes": 3, "valid": 8})
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert files == {
        "task.toml",
        "instruction.md",
        "environment/Dockerfile",
        "environment/runtime.json",
        "environment/start/m.py",
        "tests/test.sh",
        "tests/grade.py",
        "tests/expected.json",
        "tests/hidden/tests/test_m.py",
        "solution/solve.sh",
        "solution/files/m.py",
    }
    assert (place / "tests/test.sh").stat().st_mode & 0o111
    assert taskdir.calibration(place) == {"policy": "p", "passes": 3, "valid": 8}
    docker = (place / "environment/Dockerfile").read_text()
    assert "m==1.0" in docker and "rm -f -- tests/old.py" in docker and "ENV A='b c'" in docker


@pytest.mark.parametrize("kind", ["git", "directory"])
def test_every_kind_of_source_has_a_dockerfile(tmp_path, kind):
    task = new_task(source=Source(kind, "https://example.org/m.git", "abc", ""))
    text = (taskdir.save(task, tmp_path) / "environment/Dockerfile").read_text()
    assert ("git clone" in text) == (kind == "git")


def test_saving_again_replaces_the_whole_directory(tmp_path):
    place = taskdir.save(new_task(), tmp_path)
    (place / "left.txt").write_text("x")
    assert taskdir.save(new_task(rung=0), tmp_path) == place
    assert not (place / "left.txt").exists()
    assert taskdir.load(place).rung == 0
    assert [path.name for path in tmp_path.iterdir()] == ["m-0001"]


def test_a_failed_save_leaves_nothing(tmp_path):
    clash = (FileChange("a", b""), FileChange("a/b", b""))
    with pytest.raises(OSError):
        taskdir.save(new_task(hidden=clash), tmp_path)
    assert list(tmp_path.iterdir()) == []


def damaged(place, name, old, new):
    path = place / name
    path.write_bytes(path.read_bytes().replace(old, new))


@pytest.mark.parametrize(
    "name, old, new, words",
    [
        ("task.toml", b"\nformat = 1", b"\nformat = 9", "has task format 9"),
        ("task.toml", b"[metadata.tadpole]", b"[metadata.other]", "format is missing"),
        ("task.toml", b"schema_version", b"schema version", "no tadpole task"),
        pytest.param(
            *("task.toml", b"schema_version =", b"x = " + b"[" * 9000, "task: nested too deeply"),
            id="deep",
        ),
        pytest.param(
            *("task.toml", b"\nformat = 1", b"\nformat = " + b"9" * 5000, "task: a number with"),
            id="giant",
        ),
        ("task.toml", b"[metadata.tadpole.recipe]", b"[[metadata.tadpole.recipe]]", "incomplete"),
        ("task.toml", b"rung = 6\ntest", b"rung = 0\ntest", "was changed"),
        ("task.toml", b"rung = 6\ntest", b"rung = 5\ntest", "was changed"),
        ("task.toml", b'"tests/old.py"', b'"../old.py"', "outside the work tree"),
        ("task.toml", b"\ntest_seconds = ", b"\ntest_seconds = []#", "incomplete"),
        ("instruction.md", b"replace", b"leave", "was changed"),
        ("environment/start/m.py", b"add", b"sub", "was changed"),
        ("tests/hidden/tests/test_m.py", b"== 3", b"!= 3", "was changed"),
    ],
)
def test_a_changed_directory_is_refused_in_one_line(tmp_path, name, old, new, words):
    place = taskdir.save(new_task(), tmp_path)
    damaged(place, name, old, new)
    with pytest.raises(TaskError, match=words) as caught:
        taskdir.load(place)
    assert "\n" not in str(caught.value)


def test_missing_files_and_empty_sets_are_told(tmp_path):
    with pytest.raises(TaskError, match="holds no tasks"):
        taskdir.load_set(tmp_path)
    place = taskdir.save(new_task(), tmp_path)
    (place / "solution/files/m.py").unlink()
    with pytest.raises(TaskError, match=r"incomplete: .*m\.py is missing"):
        taskdir.load_set(tmp_path)
    with pytest.raises(TaskError, match="no tadpole task"):
        taskdir.load(tmp_path / "nothing")


def test_sets_are_sorted_by_name(tmp_path):
    for name in ("b-0002", "a-0001", "c-0000"):
        taskdir.save(new_task(name=name), tmp_path)
    assert [task.name for task in taskdir.load_set(tmp_path)] == ["a-0001", "b-0002", "c-0000"]


@pytest.mark.parametrize(
    "content, wanted",
    [
        (GOLD, {"reward": 1, "fail_to_pass": 1, "pass_to_pass": 1}),
        (BUGGY, {"reward": 0, "fail_to_pass": 0, "pass_to_pass": 1}),
        (b"def add(:", {"reward": 0, "fail_to_pass": 0, "pass_to_pass": 0}),
        (b"import os\nos._exit(0)", {"reward": 0, "fail_to_pass": 0, "pass_to_pass": 0}),
    ],
)
def test_the_grader_of_a_task_directory_runs_by_itself(tmp_path, content, wanted):
    place = taskdir.save(new_task(), tmp_path / "set")
    work, logs = tmp_path / "repo", tmp_path / "logs"
    (work / "tests").mkdir(parents=True)
    (work / "m.py").write_bytes(content)
    (work / "tests/test_m.py").write_text("def test_add(): pass\ndef test_ok(): pass\n")
    told = json.loads((place / "tests/expected.json").read_bytes()) | {"workdir": str(work)}
    (place / "tests/expected.json").write_text(json.dumps(told))
    env = {"PATH": "/usr/bin:/bin", "TADPOLE_LOGS": str(logs)}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = process.run([sys.executable, str(place / "tests/grade.py")], env=env, timeout=60)
    assert done.ok, done
    assert json.loads((logs / "reward.json").read_bytes()) == wanted
    details = json.loads((logs / "reward-details.json").read_bytes())
    assert bool(details["not_passed"]) == (wanted["reward"] == 0)
