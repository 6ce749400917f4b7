import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tinyrepo import LIBRARY, PACKAGING, git, repository, write

from tadpole import process
from tadpole.errors import SourceError, TadpoleError, TaskError
from tadpole.grading.grader import PytestGrader
from tadpole.outcome import GradeStatus
from tadpole.repos.shelf import Shelf
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.task import FileChange, Hint, Provenance, Task, TaskKind

AREA = "tests/test_area.py"
SQUARES = (f"{AREA}::test_square[a | b[x]::y z]", f"{AREA}::test_square[two]")


def new_task(snapshot: Snapshot, *start: FileChange) -> Task:
    return Task(
        name="shapes-0001",
        kind=TaskKind.BUG_FIX,
        source=snapshot.source,
        snapshot=snapshot.key,
        runtime=snapshot.runtime,
        recipe=snapshot.recipe,
        start=start,
        gold=(),
        hidden=(),
        fail_to_pass=SQUARES,
        pass_to_pass=(),
        hints=(Hint(0, "square is wrong"),),
        rung=0,
        provenance=Provenance("test"),
    )


BUG = FileChange("shapes/area.py", LIBRARY["shapes/area.py"].replace("* side", "+ side").encode())
GONE = FileChange("tests/test_odd.py", None)


def test_stable_is_what_passes_under_every_hash_seed_in_both_orders_and_on_a_slow_machine(
    snapshot: Snapshot,
) -> None:
    assert snapshot.baseline.stable == (
        *SQUARES,
        f"{AREA}::test_negative",
        f"{AREA}::TestBox::test_volume",
        "tests/test_odd.py::test_first",
        "tests/test_odd.py::test_needs_no_quick_machine",
    )
    assert snapshot.baseline.collected == 15
    assert {
        kind: [i.partition("::")[2] for i in ids] for kind, ids in snapshot.baseline.aside.items()
    } == {
        "flaky": ["test_needs_first", "test_needs_hash_seed", "test_needs_a_quick_machine"],
        "skipped": ["test_skipped"],
        "xfailed": ["test_expected_to_fail"],
        "xpassed": ["test_passes_unexpectedly"],
    }
    assert set(snapshot.baseline.seconds) == set(snapshot.baseline.stable)
    assert snapshot.baseline.suite_seconds > 0


def test_covered_lines_and_functions_name_their_tests(snapshot: Snapshot) -> None:
    base = snapshot.baseline
    assert base.files == ("shapes/area.py",)
    assert base.lines("shapes/area.py")[6] == (f"{AREA}::test_negative",)
    assert base.tests_of("shapes/area.py", [6, 7]) == (*SQUARES, f"{AREA}::test_negative")
    assert base.tests_of("shapes/area.py") == base.stable[:4]
    assert base.tests_of("shapes/none.py") == ()
    found = base.functions("shapes/area.py")
    assert [(f.name, f.first, f.last, f.lines) for f in found] == [
        ("square", 4, 7, (5, 6, 7)),
        ("Box.__init__", 11, 12, (12,)),
        ("Box.volume", 14, 16, (16,)),
    ]
    assert found[0].tests == (*SQUARES, f"{AREA}::test_negative")


def test_the_environment_is_locked_and_the_licence_known(snapshot: Snapshot) -> None:
    pinned = snapshot.recipe.requirements
    assert all("==" in one for one in pinned)
    assert {"pytest", "coverage"} < {one.partition("==")[0] for one in pinned}
    assert "shapes==1.5" not in pinned
    assert snapshot.source.licence == "MIT"
    assert snapshot.name == "shapes"


async def test_a_snapshot_is_built_once(store: Store, snapshot: Snapshot, shapes: Path) -> None:
    before = snapshot.baseline.file.stat().st_mtime_ns
    again = await Store(store.cache, store.engine, store.pip).snapshot(str(shapes))
    assert again == snapshot
    assert again.baseline.file.stat().st_mtime_ns == before


async def test_the_box_imports_the_checkout_and_tells_nothing_of_the_host(
    store: Store, snapshot: Snapshot
) -> None:
    box = await store.engine.start(await store.spec(new_task(snapshot, BUG, GONE)))
    try:
        code = (
            "import shapes, sys, importlib.metadata as m\n"
            "print(shapes.__file__, m.version('shapes'), sys.prefix)\n"
        )
        said = await box.exec([store.python(snapshot), "-c", code], timeout=20)
        assert said.stdout.split() == ["/repo/shapes/__init__.py", "1.5", "/venv"], said
        for script in ("pytest --version", "shapes --help; test $? -eq 1", "python -m pytest -h"):
            said = await box.exec(["bash", "-c", script], timeout=20)
            assert said.code == 0, said
        host = str(store.cache)
        sweep = f"grep -rlF {host} /venv; find / -path /proc -prune -o -name area.py -print"
        said = await box.exec(["bash", "-c", sweep], timeout=60)
        assert said.stdout.split() == ["/repo/shapes/area.py"]
        # A hash of the pristine files would tell which of them was changed.
        said = await box.exec(
            ["bash", "-c", "ls /venv/lib/python*/site-packages/shapes*"], timeout=9
        )
        assert "RECORD" not in said.stdout
        assert "direct_url.json" not in said.stdout
        # The host's paths show in the list of mounts: no name of a task or source is in them.
        mounts = (await box.exec(["cat", "/proc/self/mountinfo"], timeout=20)).stdout
        told = [line.replace(host, "") for line in mounts.splitlines()]
        assert " /repo " in mounts and not any("shapes" in line for line in told)
        said = await box.exec(["git", "status", "--porcelain"], timeout=20)
        assert (said.code, said.stdout) == (0, "")
        said = await box.exec(["git", "log", "--all", "--format=%s"], timeout=20)
        assert said.stdout == "Initial state\n"
        edit = "echo '#' >> shapes/area.py && git commit -qam mine && git log --oneline | wc -l"
        said = await box.exec(["bash", "-c", edit], timeout=20)
        assert said.stdout.strip() == "2"
        assert "shapes/area.py" in [change.path for change in await box.delta()]
    finally:
        await box.close()
    assert (snapshot.tree / "shapes/area.py").read_text() == LIBRARY["shapes/area.py"]


async def test_a_start_tree_has_the_bug_one_commit_and_no_bytecode(
    store: Store, snapshot: Snapshot
) -> None:
    tree = await store.tree(new_task(snapshot, BUG, GONE))
    assert (tree / BUG.path).read_bytes() == BUG.content
    assert not (tree / GONE.path).exists()
    assert git(tree, "rev-list", "--all", "--objects", "--count") > "1"
    assert git(tree, "log", "--all", "--format=%s") == "Initial state"
    # No git command reaches the fix: every object belongs to that one commit.
    assert git(tree, "fsck", "--unreachable", "--no-reflogs") == ""
    fixed = git(tree, "hash-object", str(snapshot.tree / BUG.path))
    assert subprocess.run(["git", "-C", tree, "cat-file", "-e", fixed], check=False).returncode
    names = {path.name for path in tree.rglob("*")}
    assert not {"__pycache__", ".pytest_cache", "shapes.egg-info", "build"} & names
    assert not [name for name in names if name.endswith(".pyc")]
    for path in tree.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o444 == 0o444, path
        assert not path.is_dir() or mode & 0o111 == 0o111, path
    assert await store.tree(new_task(snapshot, BUG, GONE)) == tree


async def test_a_task_alone_is_enough_to_rebuild_its_box(
    store: Store, snapshot: Snapshot, tmp_path: Path
) -> None:
    task = new_task(snapshot, BUG)
    fresh = Store(tmp_path / "cache", store.engine, store.pip)
    spec, same = await fresh.spec(task), await store.spec(task)
    assert spec.tree.relative_to(fresh.cache) == same.tree.relative_to(store.cache)
    assert git(spec.tree, "rev-parse", "HEAD") == git(same.tree, "rev-parse", "HEAD")
    assert spec.env == same.env
    assert not (fresh.cache / "snapshots").exists()  # no suite had to run


@pytest.mark.parametrize("extra", [AREA, "conftest.py", "tests/conftest.py"])
async def test_nothing_is_graded_by_tests_that_changed_in_the_cache(
    store: Store, snapshot: Snapshot, extra: str
) -> None:
    task = replace(new_task(snapshot, BUG), name="shapes-0002")
    tree = (await store.spec(task)).tree
    file, was = tree / extra, LIBRARY.get(extra)
    file.unlink(missing_ok=True)  # not through the link that the pristine tree shares
    file.write_text((was or "") + "# one line more\n")
    try:
        for some in (store, Store(store.cache, store.engine, store.pip)):
            grade = await PytestGrader(store.engine, some).grade(task, [GONE, BUG])
            assert (grade.status, grade.resolved) == (GradeStatus.INVALID, False)
            assert f"{extra} of shapes-0002 was changed in the cache" in grade.reason
    finally:
        file.unlink()
        if was is not None:
            file.write_text(was)
    assert (await store.spec(task)).tree == tree


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"runtime": "0" * 64}, "made in another environment"),
        ({"snapshot": "0" * 64}, "does not belong to its source"),
    ],
)
async def test_a_task_that_does_not_fit_is_refused(
    store: Store, snapshot: Snapshot, change: dict[str, str], says: str
) -> None:
    with pytest.raises(TaskError, match=says):
        await store.spec(replace(new_task(snapshot, BUG), **change))


async def test_a_task_whose_source_has_other_bytes_is_refused(
    store: Store, snapshot: Snapshot
) -> None:
    other = replace(snapshot.source, sha256="0" * 64)
    with pytest.raises(TaskError, match="its hash differs"):
        await store.spec(replace(new_task(snapshot, BUG), source=other))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (
            [{"lib.py": "x = 1\n", "test_lib.py": "def test_a():\n    assert 0, 'no'\n"}],
            "1 of 1 tests of .* fail before any change, first test_lib.py::test_a .*no.*: make",
        ),
        ([{"lib.py": "x = 1\n", "test_lib.py": "y = 1\n"}], "has no tests that pytest finds"),
        (
            [{"lib.py": "x = 1\n", "test_lib.py": "import nowhere\n"}],
            "cannot be loaded .test_lib.py: ModuleNotFoundError: No module named 'nowhere'",
        ),
        (
            [{"lib.py": "import nowhere\n", "test_lib.py": "def test_a():\n    pass\n"}],
            "cannot be imported .*No module named 'nowhere'.*requirements",
        ),
        (
            [{"json/__init__.py": "", "test_json.py": "def test_a():\n    pass\n"}],
            "json is imported from /.*, not from the checkout",
        ),
        (
            [
                {
                    "lib.py": "",
                    "pytest.ini": "[pytest]\naddopts = --x\n",
                    "test_a.py": "def test_a(): 0",
                }
            ],
            "pytest cannot run the tests of .*unrecognized arguments: --x",
        ),
        ([{"lib.py": "x = 1\n"}], "has no tests that pytest would find"),
        (
            [
                {"lib.py": "", "test_a.py": "", "setup.py": "raise ValueError('odd')\n"},
                {"pyproject.toml": "[build-system]\nrequires = ['setuptools']\n"},
            ],
            r"pip cannot get what .* needs \(ValueError: odd\)",
        ),
    ],
)
async def test_a_repository_that_cannot_be_a_snapshot_is_told_in_one_line(
    store: Store, tmp_path: Path, parts: list[dict[str, str]], says: str
) -> None:
    root = write(tmp_path / "lib", *parts)
    with pytest.raises(SourceError, match=says) as error:
        await store.snapshot(str(root))
    assert "\n" not in str(error.value)
    assert not list((store.cache / "snapshots").glob(f".*.{os.getpid()}"))  # half of it


async def test_files_that_only_a_build_makes_are_in_the_checkout(
    store: Store, snapshot: Snapshot, shapes: Path
) -> None:
    assert "tests/test_odd.py::test_first" in snapshot.baseline.stable  # its file imports one
    assert (snapshot.tree / "shapes/_version.py").read_text() == "version = 7\n"
    assert not (shapes / "shapes/_version.py").exists()
    tree = await store.tree(new_task(snapshot, BUG))
    assert (tree / "shapes/_version.py").read_text() == "version = 7\n"
    assert git(tree, "ls-files", "shapes/_version.py") == "shapes/_version.py"


HELPER = {
    "helper.py": "def one():\n    return 1\n",
    "pyproject.toml": (
        "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'helper'\nversion = '0.3'\n[tool.setuptools]\npy-modules = ['helper']\n"
    ),
}


async def test_what_is_needed_from_a_git_repository_is_not_taken_for_the_project(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = repository(tmp_path / "helper", HELPER)
    # Older pips take no address without a host; git itself goes to the directory instead.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{tmp_path.as_uri()}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.invalid/")
    needs = "helper @ git+https://git.invalid/helper"
    said = f"[tool.tadpole]\nrequirements = ['{needs}']\n"
    project = {
        **PACKAGING,
        "pyproject.toml": PACKAGING["pyproject.toml"] + said,
        "tests/test_helper.py": "from helper import one\n\n\ndef test_one():\n    assert one()\n",
    }
    snapshot = await store.snapshot(str(repository(tmp_path / "shapes", LIBRARY, project)))
    assert "tests/test_helper.py::test_one" in snapshot.baseline.stable
    pinned = snapshot.recipe.requirements
    assert f"{needs}@{git(helper, 'rev-parse', 'HEAD')}" in pinned
    assert not [one for one in pinned if one.startswith("shapes")]
    assert snapshot.source.licence == "MIT"


# --- the shelf ---------------------------------------------------------------------------------


async def test_what_a_killed_build_left_is_removed_and_built_again(tmp_path: Path) -> None:
    leftover = write(tmp_path / "shelf" / ".key.12345", {"half": ""})
    shelf = Shelf(tmp_path / "shelf")

    async def build(beside: Path) -> None:
        assert not list(beside.iterdir())
        (beside / "whole").write_text("x")

    place = await shelf.get("key", build)
    assert [path.name for path in place.iterdir()] == ["whole"]
    assert not leftover.exists()


async def test_a_build_that_fails_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")

    async def fail(beside: Path) -> None:
        (beside / "half").write_text("x")
        raise SourceError("no")

    async def work(beside: Path) -> None:
        (beside / "whole").write_text("x")

    with pytest.raises(SourceError):
        await shelf.get("key", fail)
    assert [path.name for path in shelf.root.iterdir()] == [".locks"]
    assert (await shelf.get("key", work) / "whole").is_file()


async def test_one_builds_and_the_others_wait(tmp_path: Path) -> None:
    shelf, built = Shelf(tmp_path / "shelf"), []

    async def build(beside: Path) -> None:
        built.append(beside)
        await asyncio.sleep(0.2)

    places = await asyncio.gather(*(shelf.get("key", build) for _ in range(4)))
    assert len(set(places)) == len(built) == 1


async def test_another_process_waits_too(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys, pathlib, time\n"
        "from tadpole.repos.shelf import Shelf\n"
        "async def build(beside):\n"
        "    time.sleep(0.5)\n"
        "    (beside / 'by').write_text(sys.argv[2])\n"
        "    print('built')\n"
        "asyncio.run(Shelf(pathlib.Path(sys.argv[1])).get('key', build))\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "shelf")]
    both = await asyncio.gather(*(process.arun([*argv, name]) for name in ("a", "b")))
    assert all(done.ok for done in both), both
    assert sorted(done.stdout for done in both) == [b"", b"built\n"]


async def test_a_full_disk_is_told_in_one_line(store: Store, shapes: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with _small_disk(disk):
        with pytest.raises(TadpoleError, match=r"no space left .*TADPOLE_CACHE") as error:
            await Store(disk / "cache", store.engine, store.pip).snapshot(str(shapes))
        assert "\n" not in str(error.value)
        left = [p for p in (disk / "cache").glob("*/*") if p.name != ".locks"]
        assert not [p for p in left if p.name.startswith(".")]
        assert not list((disk / "cache").glob("snapshots/*/baseline.json"))


@contextlib.contextmanager
def _small_disk(place: Path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() or not process.run(mount).ok:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        process.run(["umount", "-l", str(place)])


async def test_a_cache_that_cannot_be_written(store: Store, shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TadpoleError, match=r"cannot write below .* TADPOLE_CACHE"):
        await Store(tmp_path / "file" / "cache", store.engine, store.pip).snapshot(str(shapes))


# --- the network -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("boltons", 500), ("cachetools", 470)])
async def test_a_release_from_the_index(tmp_path: Path, engine, name: str, least: int) -> None:
    store = Store(tmp_path / "cache", engine)
    snapshot = await store.snapshot(f"pypi:{name}")
    assert len(snapshot.baseline.stable) >= least
    assert snapshot.source.sha256
    assert snapshot.source.licence
    path = snapshot.baseline.files[0]
    start = FileChange(path, (snapshot.tree / path).read_bytes() + b"\n# changed\n")
    spec = await store.spec(new_task(snapshot, start))
    box = await engine.start(spec)
    sweep = f"find / -path /proc -prune -o -path '*/{name}/*.py' -print"
    said = await box.exec(["bash", "-c", sweep], timeout=60)
    await box.close()
    assert all(line.startswith("/repo/") for line in said.stdout.split()), said.stdout
    assert json.loads((snapshot.baseline.file).read_text())["stable"]


@pytest.mark.slow
async def test_an_unlisted_release_is_discovered(tmp_path: Path, engine) -> None:
    snapshot = await Store(tmp_path / "cache", engine).snapshot("pypi:iniconfig==2.3.1")
    assert len(snapshot.baseline.stable) >= 40
    assert snapshot.recipe.import_paths == ("src",)
