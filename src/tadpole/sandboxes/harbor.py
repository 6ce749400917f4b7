"""Boxes of a Harbor environment: a container engine, a cluster or a service that Harbor knows.

For clusters whose rollout workers may not make boxes of their own. The environment's image is
``sandbox.image`` with what a box mounts copied into it; Harbor builds it once for each runtime. The
work tree is sent to each box.

What isolates is the environment: a box starts only where it can be without a network, and before
anything runs one is asked for this machine's files, variables and loopback. All else is its
promise, not ours (users, system calls, limits of processes and disk): see
:mod:`tadpole.sandboxes.errands` for what a call guards against.
"""

import asyncio
import contextlib
import hashlib
import itertools
import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tadpole.errors import SandboxStartError, SandboxUnavailable
from tadpole.protocols import SandboxSpec
from tadpole.rundir import cache_dir
from tadpole.sandboxes.errands import TRANSFER_SECONDS, Errands
from tadpole.settings import BoxKind

_counter = itertools.count()


class HarborEngine:
    """Starts boxes in ``environment``: one of Harbor's types, or MODULE:CLASS, over ``image``."""

    kind = BoxKind.HARBOR
    python = "python3"

    def __init__(self, environment: str, image: str) -> None:
        self._environment, self._image = environment, image

    @property
    def made_of(self) -> str:
        """What the boxes are made of, for a person. Raises SandboxUnavailable."""
        _environment_class(self._environment)
        return f"Harbor's {self._environment}, {self._image}"

    async def start(self, spec: SandboxSpec) -> Errands:
        """Start a box over ``spec.tree``.

        Raises SandboxUnavailable without Harbor or for an environment that it does not know,
        SandboxStartError where this one box did not start.
        """
        found = _environment_class(self._environment)
        if spec.links:
            raise SandboxStartError("links at the top need bubblewrap: --sandbox.engine auto")
        place = HarborPlace(found, definition(self._image, spec), spec)
        await place.start()
        return await Errands(self.kind, place, spec, self.python).opened(spec)


class HarborPlace:
    """One environment of Harbor's, as :class:`tadpole.sandboxes.errands.Place`."""

    def __init__(self, found: type[Any], directory: Path, spec: SandboxSpec) -> None:
        from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
        from harbor.models.trial.paths import TrialPaths

        self._kept = tempfile.TemporaryDirectory(
            prefix="tadpole-harbor-", ignore_cleanup_errors=True
        )
        name = f"tadpole-{os.getpid()}-{next(_counter)}"
        limits = spec.limits
        try:
            self._box = found(
                environment_dir=directory,
                environment_name=f"tadpole-{directory.name}",
                session_id=name,
                trial_paths=TrialPaths(Path(self._kept.name)),
                task_env_config=EnvironmentConfig(
                    memory_mb=limits.memory >> 20,
                    storage_mb=limits.disk >> 20,
                    workdir=spec.workdir,
                    network_mode=NetworkMode.NO_NETWORK,
                ),
                network_policy=NetworkPolicy(network_mode=NetworkMode.NO_NETWORK),
            )
        except Exception as error:  # it refuses what it cannot do: no network, a limit
            self._kept.cleanup()
            raise SandboxStartError(f"Harbor's environment refuses: {_line(error)}") from error

    async def start(self) -> None:
        """Build what is missing and start. Raises SandboxStartError."""
        try:
            await self._box.start(force_build=False)
        except BaseException as error:
            with contextlib.suppress(Exception):  # what kept it from starting is what counts
                async with asyncio.timeout(TRANSFER_SECONDS):
                    await asyncio.shield(self.end())
            if isinstance(error, Exception):
                raise SandboxStartError(
                    f"Harbor's environment did not start: {_line(error)}"
                ) from error
            raise

    async def run(self, command: str, seconds: float) -> str:
        """See Place."""
        done = await self._box.exec(command, cwd="/", timeout_sec=int(seconds) + 1)
        if not done.return_code:
            return ""
        said = (done.stderr or done.stdout or "").strip().splitlines()[-1:]
        return f"exit code {done.return_code}: {said[0] if said else 'it said nothing'}"

    async def put(self, source: Path, target: str) -> None:
        """See Place."""
        send = self._box.upload_dir if source.is_dir() else self._box.upload_file
        await send(source, target)

    async def get(self, source: str, target: Path) -> None:
        """See Place."""
        await self._box.download_file(source, target)

    async def end(self) -> None:
        """See Place."""
        try:
            await self._box.stop(delete=True)
        finally:
            self._kept.cleanup()


def definition(image: str, spec: SandboxSpec) -> Path:
    """The directory that describes the environment of ``spec``'s mounts; made where it is missing.

    Mounts come from caches whose paths name their content, so that paths tell them apart.
    """
    mounts = sorted((target, source.resolve()) for target, source in spec.mounts.items())
    words = "\0".join([image, *(f"{target}={source}" for target, source in mounts)])
    made = cache_dir() / "harbor" / hashlib.sha256(words.encode()).hexdigest()[:16]
    if made.is_dir():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=made.parent) as directory:
        beside = Path(directory) / "made"
        beside.mkdir()
        lines = [f"FROM {image}"]
        if mounts:  # a mount hides what is there
            lines.append(f"RUN rm -rf {' '.join(shlex.quote(target) for target, _ in mounts)}")
        for number, (target, source) in enumerate(mounts):
            name = f"m{number}"
            covered = [Path(other) for other, _ in mounts if other != target]
            _copy(source, beside / name, Path(target), covered)
            lines.append(f'COPY ["{name}", "{target}"]')
        (beside / "Dockerfile").write_text("\n".join(lines) + "\n")
        try:
            os.rename(beside, made)
        except OSError:
            if not made.is_dir():  # else another process made the same
                raise
    return made


def _copy(source: Path, made: Path, target: Path, others: Sequence[Path]) -> None:
    """Without what is in directories that another mount covers."""
    if not source.is_dir():
        shutil.copy2(source, made)
        return
    hidden = {
        source / other.relative_to(target) for other in others if other.is_relative_to(target)
    }

    def covered(folder: str, names: list[str]) -> list[str]:
        return names if Path(folder) in hidden else []

    shutil.copytree(source, made, symlinks=True, ignore=covered)


def _environment_class(wanted: str) -> type[Any]:
    """Harbor's class of that name. Raises SandboxUnavailable, one line."""
    try:
        from harbor.environments.factory import EnvironmentFactory
        from harbor.models.environment_type import EnvironmentType
    except ImportError:
        raise SandboxUnavailable(
            "sandbox.engine harbor needs Harbor, which cannot be imported here: "
            "pip install 'tadpole[harbor]' with Python 3.12 or newer"
        ) from None
    try:
        if ":" in wanted:
            found = EnvironmentFactory.get_environment_class(import_path=wanted)
        else:
            found = EnvironmentFactory.get_environment_class(EnvironmentType(wanted))
    except Exception as error:  # an unknown name, a module that is not there, its own imports
        raise SandboxUnavailable(
            f"sandbox.environment {wanted!r}: {_line(error)}: give one of Harbor's types (docker, "
            "e2b, modal, ...) or MODULE:CLASS"
        ) from None
    return found  # type: ignore[no-any-return, unused-ignore]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
