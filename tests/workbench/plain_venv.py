"""The environment of a person who has pytest and nothing else.

Ours would do, but all its plugins take part in each of the gate's runs, and most of the time
goes to them.
"""

import atexit
import functools
import shutil
import tempfile
import venv
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tadpole.repos.venv import site


@functools.cache
def plain_venv() -> Path:
    """A real one, made when it is first asked for and gone with this process."""
    place = Path(tempfile.mkdtemp(prefix="tadpole-person-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    place.chmod(0o755)  # the box runs as another user
    venv.create(place, symlinks=True)
    for name in _with_what_it_needs("pytest"):
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                (site(place) / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), site(place) / file)  # times too: compiled as it is
    return place


def _with_what_it_needs(name: str) -> set[str]:
    found, owed = set[str](), [name]
    while owed:
        found.add(one := owed.pop())
        for text in distribution(one).requires or ():
            needed = Requirement(text)
            if needed.name not in found and (not needed.marker or needed.marker.evaluate()):
                owed.append(needed.name)
    return found
