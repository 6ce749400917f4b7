"""Harbor tasks of others become ours, or it is said why not."""

import asyncio

import pond
import pytest
from authors import SOLUTION, STATEMENT, TESTS
from test_taskdir import new_task

from tadpole.errors import TaskError
from tadpole.grading.grader import PytestGrader
from tadpole.pilot import taskdir
from tadpole.pilot.harbor.foreign import ImportReason, NotImportable, read
from tadpole.pilot.harbor.importing import import_tasks
from tadpole.pilot.validate import Validator

DOCKERFILE = """# as others write them
FROM python:3.11-slim
WORKDIR /app
RUN pip install --no-cache-dir pytest==9.2.0 && \\
    mkdir -p /logs
COPY repo/ .
ENV MODE=test PYTHONPATH=/app
"""
SETTINGS = """schema_version = "1.4"
[task]
name = "other/diagonal"
[environment]
network_mode = "public"
"""


def foreign(root, **changed):
    """Another's task directory; names of files with what is to be there instead (None: nothing)."""
    repository = pond.build(root / "environment/repo")
    assert repository.is_dir()
    found = {
        "task.toml": SETTINGS,
        "instruction.md": STATEMENT,
        "environment/Dockerfile": DOCKERFILE,
        "tests/test.sh": "python -m pytest /tests/test_diagonal.py && echo 1 > reward.txt\n",
        "tests/test_diagonal.py": TESTS,
        "solution/solve.sh": f"cat >> /app/pond/shapes.py <<'END'{SOLUTION}END\n",
        **changed,
    }
    for path, text in found.items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


@pytest.fixture
def validator(store, engine):
    return Validator(store, engine, PytestGrader(engine, store))


@pytest.mark.slow
async def test_anothers_task_passes_the_gates_and_is_ours(tmp_path, validator):
    foreign(tmp_path / "theirs" / "Add_Diagonal")
    (found,) = await import_tasks(tmp_path / "theirs", tmp_path / "ours", validator)
    assert (found.task, found.reason) == ("add-diagonal", None), found
    (task,) = taskdir.load_set(tmp_path / "ours")
    assert [change.path for change in task.gold] == ["pond/shapes.py"]
    assert task.statement.startswith(STATEMENT.strip())
    assert all(i.startswith("tests/harbor/test_diagonal.py::") for i in task.fail_to_pass)
    assert task.recipe.env == (("MODE", "test"),)
    assert task.provenance.author == "harbor:Add_Diagonal"


def test_ours_come_back_as_they_are(tmp_path, validator):
    task = new_task()
    taskdir.save(task, tmp_path / "theirs")
    taskdir.save(new_task(name="m-0002"), tmp_path / "theirs")
    path = tmp_path / "theirs/m-0002/instruction.md"
    path.write_text("something else")
    found = asyncio.run(import_tasks(tmp_path / "theirs", tmp_path / "ours", validator))
    assert [one.reason for one in found] == [None, ImportReason.NO_TASK]
    assert "was changed" in found[1].detail
    assert taskdir.load_set(tmp_path / "ours") == [task]


async def test_an_empty_directory_is_refused_in_one_line(tmp_path, validator):
    with pytest.raises(TaskError, match="holds no Harbor tasks"):
        await import_tasks(tmp_path, tmp_path / "ours", validator)


COMPOSE = {"environment/docker-compose.yaml": "services: {}\n"}


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({"task.toml": "schema = ["}, ImportReason.NO_TASK),
        pytest.param({"task.toml": f"x = {'[' * 9000}"}, ImportReason.NO_TASK, id="deep"),
        ({"task.toml": "environment = 3"}, ImportReason.NO_TASK),
        ({"instruction.md": None}, ImportReason.NO_TASK),
        ({"task.toml": SETTINGS + "[[steps]]\nname = 'a'\n"}, ImportReason.STEPS),
        (COMPOSE, ImportReason.COMPOSE),
        ({"task.toml": SETTINGS + "docker_image = 'x'\n"}, ImportReason.IMAGE),
        ({"environment/Dockerfile": "FROM ubuntu:24.04\n"}, ImportReason.IMAGE),
        ({"task.toml": SETTINGS + "gpus = 1\n"}, ImportReason.HARDWARE),
        ({"environment/Dockerfile": DOCKERFILE + "RUN apt-get install x\n"}, ImportReason.SETUP),
        ({"environment/Dockerfile": DOCKERFILE + "COPY ../x .\n"}, ImportReason.SETUP),
        ({"environment/Dockerfile": DOCKERFILE + "COPY repo /opt/\n"}, ImportReason.SETUP),
        ({"environment/Dockerfile": DOCKERFILE + "RUN curl x | sh\n"}, ImportReason.SETUP),
        ({"tests/test.sh": "node test.js\n"}, ImportReason.NO_PYTEST),
        ({"solution/solve.sh": None}, ImportReason.NO_SOLUTION),
        ({"tests/test_diagonal.py": "open('/app/x')\n"}, ImportReason.PLACES),
    ],
)
def test_what_a_box_cannot_provide_is_refused_with_the_reason(tmp_path, changed, reason):
    with pytest.raises(NotImportable) as caught:
        read(foreign(tmp_path / "t", **changed))
    assert caught.value.reason is reason and "\n" not in str(caught.value)


def test_what_was_read_is_the_tree_as_the_image_would_have_it(tmp_path):
    found = read(foreign(tmp_path / "t"))
    assert found.workdir == "/app" and found.requirements == ["pytest==9.2.0"]
    assert set(found.tree) == set(pond.FILES)
    assert found.env == {"MODE": "test"}
