"""A Harbor environment made of Tadpole's sandboxes: no Docker, no account, no image.

``harbor run -p TASKS -e tadpole.pilot.harbor.environment:BoxEnvironment ...`` Needs the extra
``tadpole[harbor]`` (Python 3.12). The tree and the runtime of a task come from the same cache as
everywhere else, so a task is made once and run by both.

Protects against what the sandbox protects against (:mod:`tadpole.sandboxes.bubblewrap`): there is
never a network, whatever a task asks for. Does not protect against: a task whose files in tests/
somebody changed by hand; those are loaded only if their hashes hold.
"""

import io
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)

from tadpole.errors import SandboxError
from tadpole.pilot import taskdir
from tadpole.protocols import ExecReason, Limits, Sandbox
from tadpole.rundir import cache_dir
from tadpole.workshop import Workshop

PLACE = "/tmp/.harbor"  # where the directories are that Harbor expects at the top
TOPS = ("/logs", "/tests", "/solution", "/installed-agent", "/runtime")
LONGEST = 10_800  # seconds of a command without a limit of its own


class BoxEnvironment(BaseEnvironment):  # type: ignore[misc]
    """One box for one trial, or for its verifier."""

    _sandbox: Sandbox | None = None

    @property
    def sandbox(self) -> Sandbox:
        """The box. Raises SandboxError where it never started: Harbor asks for logs even then."""
        if self._sandbox is None:
            raise SandboxError("the box never started")
        return self._sandbox

    @staticmethod
    def type() -> str:
        """Its name in results."""
        return "tadpole-box"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """No network ever; which policy a phase asks for changes nothing."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Memory is limited as a task asks; the other resources by the box's own limits."""
        return EnvironmentResourceCapabilities()

    def _validate_definition(self) -> None:
        self.task = taskdir.load(Path(self.environment_dir).parent)

    async def start(self, force_build: bool) -> None:
        """Start the box. Raises SandboxError, SourceError or TaskError."""
        workshop = Workshop.open(cache_dir())
        spec = await workshop.store.spec(self.task)
        memory = self.task_env_config.memory_mb
        limits = Limits(call_seconds=LONGEST)
        if memory:
            limits = replace(limits, memory=memory << 20)
        links = {top: f"{PLACE}{top}" for top in TOPS}
        self._sandbox = await workshop.engine.start(replace(spec, links=links, limits=limits))
        made = [f"{PLACE}{top}" for top in TOPS]
        made += [f"{PLACE}/logs/{name}" for name in ("agent", "verifier", "artifacts")]
        await self._sh("mkdir -p " + " ".join(made))

    async def stop(self, delete: bool) -> None:
        """End the box; nothing of it is left either way."""
        if self._sandbox is not None:
            await self._sandbox.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command with bash. There is one user in a box, whichever is asked for."""
        given = dict(self._merge_env(env) or {})
        where = shlex.quote(cwd or self.task_env_config.workdir or "/repo")
        done = await self.sandbox.exec(
            [*_variables(given), "/bin/bash", "-c", f"cd {where} && {{ {command}\n}}"],
            timeout=timeout_sec or LONGEST,
        )
        late = done.reason is ExecReason.TIMEOUT
        return ExecResult(
            stdout=done.stdout, stderr=done.stderr, return_code=124 if late else done.code
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the box."""
        source, target = Path(source_path), PurePosixPath(target_path)
        mode = "755" if source.stat().st_mode & 0o100 else "644"
        where, name = shlex.quote(str(target.parent)), shlex.quote(str(target))
        script = f"mkdir -p {where} && rm -rf {name} && cat > {name} && chmod {mode} {name}"
        await self._sh(script, source.read_bytes())

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a directory's content into the box."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(source_dir, arcname=".", filter=_anonymous)
        where = shlex.quote(target_dir)
        await self._sh(f"mkdir -p {where} && tar -xf - -C {where}/", packed.getvalue())

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the box. Raises FileNotFoundError."""
        target = Path(target_path)
        content = await self.sandbox.read(_inside(source_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a directory's content out of the box, no link and no device among it."""
        packed = f"{PLACE}/out.tar"
        await self._sh(f"tar -cf {packed} -C {shlex.quote(source_dir)}/ .")
        content = await self.sandbox.read(packed)
        await self._sh(f"rm {packed}")
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            plain = [one for one in tar if one.isfile() or one.isdir()]
            tar.extractall(target_dir, members=plain, filter="data")

    async def _apply_network_policy(self, network_policy: Any) -> None:
        """There is no network in a box to give or take."""

    async def _sh(self, script: str, stdin: bytes = b"") -> None:
        done = await self.sandbox.exec(["/bin/sh", "-c", script], timeout=600, stdin=stdin)
        if done.code:
            raise SandboxError(f"the box could not do `{script[:80]}`: {done.stderr.strip()[:200]}")


def _variables(given: Mapping[str, str]) -> Sequence[str]:
    return ["env", *(f"{name}={value}" for name, value in given.items())] if given else []


def _inside(path: str) -> str:
    """Where a path really is: a box reads through no link."""
    for top in TOPS:
        if path == top or path.startswith(f"{top}/"):
            return f"{PLACE}{path}"
    return path


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 1000
    member.uname = member.gname = "user"
    return member
