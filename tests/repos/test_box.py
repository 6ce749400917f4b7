from pathlib import Path

import pytest

from tadpole.repos import box
from tadpole.task import Recipe


def test_copies_of_a_library_below_usr_are_covered(tmp_path: Path) -> None:
    if not (found := box.modules()):
        pytest.skip("no Python package lies below /usr outside the standard library")
    name = next(iter(found))
    mounts = box.mounts(tmp_path / "venv", tmp_path / "hide", Recipe(packages=(name,)))
    for copy in found[name]:
        over = [path for path in mounts if copy == path or copy.startswith(f"{path}/")]
        assert over, copy
        source = mounts[over[0]]
        assert not (list(source.iterdir()) if source.is_dir() else source.read_bytes())


def test_the_standard_library_is_never_covered(tmp_path: Path) -> None:
    names = ("json", "urllib", "parse", "os", "email", "unittest")
    found = box.mounts(tmp_path / "venv", tmp_path / "hide", Recipe(packages=names))
    standard = ("/json", "/urllib", "/parse.py", "/os.py", "/email", "/unittest")
    assert not [path for path in found if "/lib/python3" in path and path.endswith(standard)]


def test_variables_of_the_recipe_win(tmp_path: Path) -> None:
    seen = box.environment(Recipe(env=(("TZ", "Asia/Tokyo"),)))
    assert seen["TZ"] == "Asia/Tokyo"
    assert seen["PATH"].startswith("/venv/bin:")
    assert seen["PYTHONDONTWRITEBYTECODE"] == "1"
