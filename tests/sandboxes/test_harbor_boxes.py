"""Boxes of Harbor environments: refused in one line, or a box as any other."""

import importlib.util
from pathlib import Path

import pytest

from tadpole.config import load
from tadpole.errors import ConfigError, SandboxStartError, SandboxUnavailable
from tadpole.grading.grader import PytestGrader
from tadpole.outcome import GradeStatus
from tadpole.pilot import make
from tadpole.progress import Progress
from tadpole.protocols import SandboxSpec
from tadpole.repos.store import Store
from tadpole.sandboxes import harbor, ladder
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.settings import BoxKind, SandboxConfig
from tadpole.task import FileChange
from tests.pilot import pond

HERE = "harboring:CopiedEnvironment"
needs_harbor = pytest.mark.skipif(
    importlib.util.find_spec("harbor") is None,
    reason="harbor is not installed: pip install 'tadpole[harbor]' (Python 3.12)",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TADPOLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"sandbox.engine": "harbor"}, "needs sandbox.environment"),
        ({"sandbox.engine": "harbor", "sandbox.environment": "docker"}, "and sandbox.image"),
        ({"sandbox.environment": "docker"}, "environment is for sandbox.engine harbor"),
    ],
)
def test_half_a_choice_is_refused(flags, line):
    with pytest.raises(ConfigError, match=line):
        load(flags)


async def test_without_harbor_one_line_says_what_to_install():
    if importlib.util.find_spec("harbor") is not None:
        pytest.skip("harbor is installed here")
    asked = SandboxConfig(engine=BoxKind.HARBOR, environment="docker", image="python:3.12")
    with pytest.raises(SandboxUnavailable, match=r"pip install 'tadpole\[harbor\]'") as refused:
        await ladder.choose(asked)
    assert "\n" not in str(refused.value)


def test_what_a_box_mounts_is_copied_into_its_image_once(tree: Path, tmp_path: Path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to("/usr/bin/python3")
    (tmp_path / "venv" / "lib").mkdir()
    (tmp_path / "venv" / "lib" / "hidden").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.py").write_text("one")
    mounts = {"/venv": tmp_path / "venv", "/opt/one file.py": tmp_path / "one.py"}
    mounts["/venv/lib"] = tmp_path / "empty"
    made = harbor.definition("python:3.12", SandboxSpec(tree=tree, mounts=mounts))
    assert (made / "Dockerfile").read_text().splitlines() == [
        "FROM python:3.12",
        "RUN rm -rf '/opt/one file.py' /venv /venv/lib",
        'COPY ["m0", "/opt/one file.py"]',
        'COPY ["m1", "/venv"]',
        'COPY ["m2", "/venv/lib"]',
    ]
    assert not list((made / "m1/lib").iterdir()) and not list((made / "m2").iterdir())
    assert (made / "m1/bin/python").is_symlink() and (made / "m0").read_text() == "one"
    assert harbor.definition("python:3.12", SandboxSpec(tree=tree, mounts=mounts)) == made
    assert harbor.definition("python:3.13", SandboxSpec(tree=tree, mounts=mounts)) != made
    assert len(list(made.parent.iterdir())) == 2


@needs_harbor
class TestInstalled:
    async def test_a_box_is_one_as_any_other(self, tree: Path, tmp_path: Path):
        (tmp_path / "given").mkdir()
        (tmp_path / "given" / "a.txt").write_text("given\n")
        spec = SandboxSpec(tree=tree, mounts={"/opt/given": tmp_path / "given"})
        box = await harbor.HarborEngine(HERE, "python:3.12").start(spec)
        try:
            seen = await box.tool("Bash", {"command": "cat /opt/given/a.txt run.sh > new; ls"})
            assert "new" in seen.text and not seen.error
            (change,) = await box.delta()
            assert (change.path, change.content) == ("new", b"given\n#!/bin/sh\necho run\n")
        finally:
            await box.close()

    async def test_what_kept_it_from_starting_is_told_though_it_does_not_stop(self, tree: Path):
        stuck = harbor.HarborEngine("harboring:StuckEnvironment", "python:3.12")
        with pytest.raises(SandboxStartError, match="did not start: no room"):
            await stuck.start(SandboxSpec(tree=tree))

    async def test_the_host_is_out_of_reach_or_there_is_no_engine(self):
        asked = SandboxConfig(engine=BoxKind.HARBOR, environment=HERE, image="python:3.12")
        engine = await ladder.choose(asked)
        assert engine.kind is BoxKind.HARBOR and "python:3.12" in engine.made_of

    @pytest.mark.slow
    async def test_a_task_is_played_for_and_graded_in_them(self, tmp_path: Path, cache: Path):
        """Its runtime is in the image, its tree is sent; the interpreter sees no other packages."""
        root = pond.build(tmp_path / "pond")
        inside = Store(cache, BubblewrapEngine(), pond.LocalPip())
        (task,) = await make.make_tasks(
            [str(root)], count=1, seed=0, store=inside, engine=BubblewrapEngine(),
            grader=PytestGrader(BubblewrapEngine(), inside), out=tmp_path / "tasks",
            progress=Progress.silent(),
        )  # fmt: skip
        engine = harbor.HarborEngine(HERE, "python:3.12")
        store = Store(cache, engine, pond.LocalPip())
        box = await engine.start(await store.spec(task))
        ask = [store.python(task), "-c", "import pond, sys; print(pond.__file__, *sys.path)"]
        done = await box.exec(ask, timeout=60)
        await box.close()
        assert done.stdout.startswith("/repo/pond/__init__.py"), done
        grader = PytestGrader(engine, store)
        repaired, empty = [await grader.grade(task, change) for change in (task.gold, ())]
        assert (repaired.status, repaired.resolved) == (GradeStatus.GRADED, True), repaired
        wrong = [FileChange("pond/extra.py", b"")]
        left = await grader.grade(task, wrong)
        assert (left.status, left.resolved) == (GradeStatus.GRADED, False) and not empty.resolved

    @pytest.mark.parametrize("wanted", ["nowhere", "no_module:Class", "pathlib:Path"])
    async def test_an_environment_that_is_none_is_told_in_one_line(self, wanted: str):
        asked = SandboxConfig(engine=BoxKind.HARBOR, environment=wanted, image="python:3.12")
        with pytest.raises(SandboxUnavailable, match="give one of Harbor's types") as refused:
            await ladder.choose(asked)
        assert repr(wanted) in str(refused.value) and "\n" not in str(refused.value)
