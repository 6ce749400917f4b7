"""A repository is looked at step by step, and what is wrong is said in words."""

from pathlib import Path

import pytest
from tinyrepo import LIBRARY, PACKAGING, git, repository, write

from tadpole.errors import SourceError
from tadpole.repos import files
from tadpole.repos.examination import examine
from tadpole.repos.pip import Pip
from tadpole.repos.recipe import recipe_for
from tadpole.repos.store import Store


async def remarks(store, source) -> dict[str, tuple[str, str, str]]:
    return {r.name: (r.mark, r.detail, r.fix) async for r in examine(store, str(source))}


async def test_a_sound_repository_with_odd_tests(store, shapes, snapshot):
    found = await remarks(store, shapes)
    assert list(found)[:5] == ["source", "recipe", "environment", "imports", "tests"]
    assert all(mark != "BAD" for mark, *_ in found.values())
    assert found["recipe"][1].startswith("discovered: tests in tests; packages shapes")
    stable, collected = len(snapshot.baseline.stable), snapshot.baseline.collected
    assert f"{stable} of {collected} pass in all runs" in found["tests"][1]
    assert "test_needs_hash_seed" in found["flaky"][1]
    assert "test_red" in found["failing"][1] and "assert (1 + 1) == 3" in found["failing"][1]
    assert any(pin.startswith("pytest==") for pin in snapshot.recipe.requirements)
    assert found["code"][:2] == ("tip", "3 functions in 1 files are run by tests")


async def test_a_file_that_needs_another_ones_path_is_told(store, tmp_path):
    files = {
        "tests/early/table.py": "WANTED = 9\n",
        "tests/early/test_first.py": "def test_first():\n    assert True\n",
        "tests/later/test_table.py": "import table\n\n\ndef test_it():\n    assert table.WANTED\n",
    }
    repo = repository(tmp_path / "repo", LIBRARY, files)
    found = await remarks(store, repo)
    mark, detail, fix = found["alone"]
    assert mark == "tip" and "import_paths" in fix
    assert detail == (
        "1 of 3 test files do not run without the others: "
        "tests/later/test_table.py (ModuleNotFoundError: No module named 'table')"
    )
    write(repo, {"pyproject.toml": '[tool.tadpole]\nimport_paths = [".", "tests/early"]\n'})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "say where tests import from")
    found = await remarks(store, repo)
    assert found["alone"] == ("ok ", "each of 3 test files runs without the others", "")


async def test_an_older_commit_is_read_as_the_head_of_its_clone_says(store, tmp_path):
    repo = repository(tmp_path / "repo", LIBRARY)
    first = git(repo, "rev-parse", "HEAD")
    write(repo, {"pyproject.toml": '[tool.tadpole]\nenv = { TZ = "UTC" }\n'})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "say how tests are run")
    said = {}
    for source in (repo, f"{repo}@{first}"):
        async for remark in examine(store, str(source)):
            if remark.name == "recipe":
                said[source] = remark.detail
                break
    now, then = said.values()
    assert now.startswith("said by its pyproject.toml: ")
    assert then.startswith("said by the pyproject.toml at the head of its clone: ")
    assert now.partition(": ")[2] == then.partition(": ")[2]


async def test_where_a_step_does_not_hold_it_ends_there(store, tmp_path):
    bare = write(tmp_path / "bare", {"code.py": "X = 1\n"})
    found = await remarks(store, bare)
    assert list(found) == ["source", "recipe"]
    (bare / "etc").symlink_to("/etc")
    found = await remarks(store, bare)
    assert list(found) == ["source", "left out", "recipe"]
    assert found["left out"][1] == "etc (a link that leads out of it, or nowhere)"
    assert found["recipe"][0] == "BAD" and "test_paths" in found["recipe"][1]
    red = {"shapes/area.py": "def square(side):\n    return 0\n"}
    wrong = repository(tmp_path / "wrong", PACKAGING, LIBRARY, red, {"tests/test_b.py": "import x"})
    found = await remarks(store, wrong)
    assert list(found) == ["source", "recipe", "environment", "tests"]
    mark, detail, _ = found["tests"]
    assert (
        mark == "BAD" and "tests/test_area.py: ImportError" in detail and "requirements" in detail
    )


async def test_what_is_no_repository_is_a_usage_error(store, tmp_path):
    with pytest.raises(SourceError, match="no repository"):
        await remarks(store, tmp_path / "nothing")


async def test_what_the_directory_of_wheels_lacks_is_told(tmp_path, store):
    """That an environment is built from one alone is what the others here stand on."""
    with pytest.raises(SourceError, match="pip download -d"):
        Pip.offline(tmp_path / "wheels")
    some = tmp_path / "wheels"
    some.mkdir()
    for wheel in Path(store.pip.env["PIP_FIND_LINKS"]).glob("*.whl"):
        if not wheel.name.startswith("pytest-"):
            (some / wheel.name).symlink_to(wheel)
    offline = Pip.offline(some)
    assert Path(offline.env["PIP_FIND_LINKS"]) == some
    found, tree = await store.fetched(str(write(tmp_path / "lib", LIBRARY)))
    recipe = recipe_for(found.kind, found.location, files.from_directory(tree))
    with pytest.raises(SourceError, match="pytest"):
        await Store(tmp_path / "cache", store.engine, offline).built(found, recipe, tree)
