"""A small library with every kind of test, and wheels of the tools that run it."""

import importlib.metadata
import subprocess
import zipfile
from pathlib import Path

TOOLS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "coverage", "setuptools")

LIBRARY = {
    "shapes/__init__.py": "from shapes.area import square\n\nUNIT = 1\n",
    "shapes/area.py": (
        "import functools\n"
        "\n"
        "\n"
        "def square(side):\n"
        "    if side < 0:\n"
        "        raise ValueError('negative side')\n"
        "    return side * side\n"
        "\n"
        "\n"
        "class Box:\n"
        "    def __init__(self, side):\n"
        "        self.side = side\n"
        "\n"
        "    @functools.cache\n"
        "    def volume(self):\n"
        "        return self.side**3\n"
        "\n"
        "\n"
        "def never_run():\n"
        "    return None\n"
    ),
    "tests/__init__.py": "",
    "tests/test_area.py": (
        "import pytest\n"
        "from shapes import square\n"
        "from shapes.area import Box\n"
        "\n"
        "\n"
        "@pytest.mark.parametrize('side', [1, 2], ids=['a | b[x]::y z', 'two'])\n"
        "def test_square(side):\n"
        "    assert square(side) == side * side\n"
        "\n"
        "\n"
        "def test_negative():\n"
        "    with pytest.raises(ValueError):\n"
        "        square(-1)\n"
        "\n"
        "\n"
        "class TestBox:\n"
        "    def test_volume(self):\n"
        "        assert Box(3).volume() == 27\n"
    ),
}

ODD = {
    "tests/test_odd.py": (
        "import os, pytest\n"
        "from shapes._version import version\n"
        "\n"
        "seen = []\n"
        "\n"
        "\n"
        "def test_first():\n"
        "    seen.append(version)\n"
        "\n"
        "\n"
        "def test_needs_first():\n"
        "    assert seen\n"
        "\n"
        "\n"
        "def test_needs_hash_seed():\n"
        "    assert os.environ['PYTHONHASHSEED'] != '1'\n"
        "\n"
        "\n"
        "def test_red():\n"
        "    assert 1 + 1 == 3\n"
        "\n"
        "\n"
        "def test_skipped():\n"
        "    pytest.skip('not here')\n"
        "\n"
        "\n"
        "@pytest.mark.xfail\n"
        "def test_expected_to_fail():\n"
        "    raise KeyError('x')\n"
        "\n"
        "\n"
        "@pytest.mark.xfail\n"
        "def test_passes_unexpectedly():\n"
        "    pass\n"
        "\n"
        "\n"
        "@pytest.fixture\n"
        "def broken():\n"
        "    raise RuntimeError('no set-up')\n"
        "\n"
        "\n"
        "def test_set_up(broken):\n"
        "    pass\n"
        "\n"
        "\n"
        "def test_needs_a_quick_machine():\n"
        "    import time\n"
        "    begun = time.perf_counter()\n"
        "    time.sleep(0.03)\n"
        "    assert time.perf_counter() - begun < 10\n"
        "\n"
        "\n"
        "def test_needs_no_quick_machine():\n"
        "    import time\n"
        "    begun = time.time()\n"
        "    time.sleep(0.03)\n"
        "    assert 0.02 < time.time() - begun < 10**6\n"
        "\n"
        "\n"
        "@pytest.fixture\n"
        "def leaky():\n"
        "    yield\n"
        "    raise RuntimeError('no tear-down')\n"
        "\n"
        "\n"
        "def test_tear_down(leaky):\n"
        "    pass\n"
    ),
}

HANGING = {
    "tests/test_hang.py": (
        "import os, time\n"
        "\n"
        "\n"
        "def test_before():\n"
        "    pass\n"
        "\n"
        "\n"
        "def test_swallows():\n"
        "    end = time.monotonic() + 30\n"
        "    while time.monotonic() < end:\n"
        "        try:\n"
        "            time.sleep(30)\n"
        "        except Exception:\n"
        "            pass\n"
        "\n"
        "\n"
        "def test_spins():\n"
        "    end = time.monotonic() + 30\n"
        "    while time.monotonic() < end:\n"
        "        pass\n"
        "\n"
        "\n"
        "def test_leaves():\n"
        "    os._exit(0)\n"
        "\n"
        "\n"
        "def test_after():\n"
        "    pass\n"
    ),
}

# How it is packaged: by setuptools, and its build makes a module that is in no commit.
PACKAGING = {
    "setup.py": (
        "from setuptools import setup\n"
        "from setuptools.command.build_py import build_py\n"
        "\n"
        "\n"
        "class Build(build_py):\n"
        "    def run(self):\n"
        "        open('shapes/_version.py', 'w').write('version = 7\\n')\n"
        "        super().run()\n"
        "\n"
        "\n"
        "setup(cmdclass={'build_py': Build})\n"
    ),
    "pyproject.toml": (
        "[build-system]\n"
        "requires = ['setuptools']\n"
        "build-backend = 'setuptools.build_meta'\n"
        "[project]\n"
        "name = 'shapes'\n"
        "version = '1.5'\n"
        "license = 'MIT'\n"
        "scripts = { shapes = 'shapes:square' }\n"
        "[tool.setuptools]\n"
        "packages = ['shapes']\n"
        "[tool.pytest.ini_options]\n"
        "filterwarnings = ['error']\n"
    ),
}


def write(root: Path, *parts: dict[str, str]) -> Path:
    for part in parts:
        for path, text in part.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    argv = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def repository(root: Path, *parts: dict[str, str]) -> Path:
    write(root, *parts)
    git(root, "init", "-q")
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "-m", "all of it")
    return root


def pack_wheels(into: Path) -> Path:
    """Wheels of what is installed here, so that pip works for real and without a network."""
    for name in TOOLS:
        one = importlib.metadata.distribution(name)
        tag = (one.read_text("WHEEL") or "").split("Tag: ")[1].split()[0]
        spelled = one.name.replace("-", "_")
        with zipfile.ZipFile(into / f"{spelled}-{one.version}-{tag}.whl", "w") as wheel:
            for file in one.files or ():
                if ".." not in file.parts and file.suffix != ".pyc":
                    wheel.write(str(one.locate_file(file)), str(file))
    return into
