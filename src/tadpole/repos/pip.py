"""Pip, asked as a program: the user's index, proxy and certificate settings hold."""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tadpole import process
from tadpole.errors import NetworkError, SourceError, TadpoleError
from tadpole.repos.address import shown

_AWAY = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")
_SECONDS = 900.0
_NO_NETWORK = (
    "NewConnectionError",
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Name or service not known",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
    "Cannot connect to proxy",
    "Connection refused",
    "ConnectionResetError",
    "Network is unreachable",
    "SSLError",
    "Could not fetch URL",
)
_TOLD = re.compile(r"(ERROR:\s*|error:\s*|(?=\w*(Error|Exception): ))")


@dataclass(frozen=True)
class Pip:
    """How pip is called. ``options`` go to every call that fetches, ``env`` over the user's."""

    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def offline(cls, wheels: Path) -> "Pip":
        """One that takes everything from a directory of wheels and source distributions.

        Raises SourceError where there is no such directory.
        """
        if not wheels.is_dir():
            raise SourceError(
                f"there is no directory of wheels at {wheels}: pip download -d {wheels} NAME"
            )
        found = str(wheels.resolve())
        return cls(
            env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": found, "PIP_CONFIG_FILE": "/dev/null"}
        )

    async def fetch(self, requirement: str, name: str, into: Path) -> Path:
        """Download the source distribution of a requirement; its path.

        Pip asks it for its metadata on the way, which runs its build backend. Raises SourceError,
        NetworkError.
        """
        arguments = ("download", "--no-deps", f"--no-binary={name}", f"--dest={into}")
        await self._call(None, [*arguments, *self.options, requirement], into, what=requirement)
        found = sorted(path for path in into.iterdir() if path.is_file())
        if not found:
            raise SourceError(f"{requirement} has no source distribution: use a git URL instead")
        return found[0]

    async def install(
        self, python: Path, requirements: Sequence[str], *, deps: bool, what: str
    ) -> None:
        """Install into the environment of ``python``; ``what`` names it in an error.

        Raises SourceError, NetworkError.
        """
        flags = ["--no-warn-script-location"] + ([] if deps else ["--no-deps"])
        await self._call(
            python,
            ["install", *flags, *self.options, *requirements],
            python.parent.parent,
            what=f"what {what} needs",
        )

    async def _call(
        self, python: Path | None, arguments: Sequence[str], work: Path, *, what: str
    ) -> None:
        found = importlib.util.find_spec("pip")
        if found is None or found.origin is None:
            raise SourceError(f"pip is missing here: {sys.executable} -m ensurepip")
        env = {name: value for name, value in os.environ.items() if name not in _AWAY}
        env |= {
            "PIP_NO_INPUT": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_REQUIRE_VIRTUALENV": "0",
            "PIP_COMPILE": "0",  # also in the environments of builds, which are thrown away
        }
        if any(os.path.isdir(argument) for argument in arguments):
            # A checkout without its history cannot tell its version.
            env |= {"SETUPTOOLS_SCM_PRETEND_VERSION": "0.0.0", "PBR_VERSION": "0.0.0"}
        scratch = work / "tmp"
        scratch.mkdir(exist_ok=True)
        pip = _command(Path(found.origin), python)
        argv = [*pip, *arguments, "--quiet", "--retries=2"]
        try:
            done = await process.arun(
                argv, env=env | {"TMPDIR": str(scratch)} | dict(self.env), timeout=_SECONDS
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if not done.ok:
            raise _explain(done, what)


def _command(origin: Path, python: Path | None) -> list[str]:
    """This pip for the environment of ``python`` (None: for this one)."""
    if python is None:
        return [sys.executable, "-m", "pip"]
    runner = origin.with_name("__pip-runner__.py")  # what --python starts, in a second process
    if runner.is_file():
        return [str(python), str(runner)]
    return [sys.executable, "-m", "pip", "--python", str(python)]


def _explain(done: process.Finished, what: str) -> TadpoleError:
    text = shown((done.stderr + done.stdout).decode(errors="replace"))
    if "No space left on device" in text:
        return TadpoleError(
            f"no space left while installing {what}: free some, or set TADPOLE_CACHE to a "
            "directory on another disk"
        )
    if any(sign in text for sign in _NO_NETWORK):
        return NetworkError(
            f"cannot reach the package index for {what}: check the network, or set PIP_INDEX_URL"
        )
    lines = [line.lstrip("│ ").strip() for line in text.splitlines()]
    told = [line for line in lines if _TOLD.match(line) and "subprocess" not in line]
    said = _TOLD.sub("", told[-1]) if told else shown(done.last_line())
    return SourceError(f"pip cannot get {what} ({said}): check the name and the version")
