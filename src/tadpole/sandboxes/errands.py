"""A box that only runs programs and moves files: every call is one program that is sent there.

For boxes of others (:mod:`tadpole.sandboxes.harbor`), to which nobody keeps a wire open. The
runner travels with each call, so that what a command did to an earlier copy counts for nothing.

Protects against: answers that are no answers, paths that lead out, a call that hangs (deadlines
on this side); all of these end the box. Does not protect against: whatever the place where the box
stands lets out. A command may change what a later delta is compared with, and by that only hide
changes of its own; one that runs as the box's root may change its Python, and answer for it.
"""

import asyncio
import contextlib
import io
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.leaf import toolbox
from tadpole.leaf.tools import ToolName
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.inside import wire
from tadpole.sandboxes.layout import environment
from tadpole.sandboxes.session import GRACE, Session
from tadpole.settings import BoxKind

PLACE = "/tmp/.tadpole"  # in the box
TRANSFER_SECONDS = 120.0  # for a call's files to come and go
_LARGEST = 256 << 20  # bytes of the answers to one call
_HERE = Path(__file__).resolve().parent
_ID = 2  # of the one request; 1 sets the runner up


class Place(Protocol):
    """Where a box stands. May raise anything."""

    async def run(self, command: str, seconds: float) -> str:
        """Run a command with a shell; why it failed, or ""."""
        ...

    async def put(self, source: Path, target: str) -> None:
        """Send a file, or what is in a directory."""
        ...

    async def get(self, source: str, target: Path) -> None:
        """Fetch a file."""
        ...

    async def end(self) -> None:
        """End the box, with all that is in it."""
        ...


class Errands(Session):
    """One box, call by call. Make it with :meth:`opened`."""

    def __init__(self, kind: BoxKind, place: Place, spec: SandboxSpec, python: str) -> None:
        super().__init__(kind, _Far(), spec.limits)
        self._place, self._python = place, python
        limits = spec.limits
        setup = {
            "op": "setup",
            "id": _ID - 1,
            "workdir": spec.workdir,
            "pristine": f"{PLACE}/pristine",
            "environment": environment(spec),
            "bwrap": "",
            "nested": False,
            "limits": {
                name: getattr(limits, name)
                for name in (
                    *("disk", "inodes", "memory", "processes", "cpu_seconds", "call_seconds"),
                    *("output_head", "output_tail"),
                )
            },
        }
        self._setup = wire.pack(setup, [b""])

    async def opened(self, spec: SandboxSpec) -> "Errands":
        """Send the work tree. Ends the box and raises SandboxStartError where that fails."""
        try:
            async with asyncio.timeout(2 * TRANSFER_SECONDS):
                await self._shell(f"mkdir -p {spec.workdir} {PLACE}/pristine")
                await self._place.put(spec.tree, spec.workdir)
                await self._place.put(spec.tree, f"{PLACE}/pristine")
        except BaseException as error:
            await asyncio.shield(self._end("not started"))
            if isinstance(error, Exception):
                raise SandboxStartError(f"the sandbox did not start: {_said(error)}") from error
            raise
        return self

    async def _shell(self, command: str, seconds: float = TRANSFER_SECONDS) -> None:
        if failed := await self._place.run(command, seconds):
            raise OSError(failed)

    def _frame(self, header: dict[str, Any], blobs: list[bytes]) -> bytes:
        return self._setup + wire.pack({**header, "id": _ID}, blobs)

    async def _exchange(
        self, header: dict[str, Any], frame: bytes, seconds: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        seconds += _asked(header)
        try:
            async with asyncio.timeout(seconds + TRANSFER_SECONDS):
                answers = await self._sent(frame, seconds)
            for answer, out in _frames(answers):
                if "busy" not in answer and ("failure" in answer or answer["id"] == _ID):
                    return answer, out
            await self._end("it did not answer")
        except TimeoutError:
            await self._end(f"no answer to {header['op']} in {seconds + TRANSFER_SECONDS:g} s")
        except Exception as error:  # whatever those raise at whose place it stands
            await self._end(_said(error))
        raise SandboxDied(f"the sandbox died: {self._dead}")

    async def _sent(self, request: bytes, seconds: float) -> bytes:
        """Let the runner serve ``request``; its answers."""
        with tempfile.TemporaryDirectory(prefix="tadpole-errand-") as directory:
            files = {name: Path(directory) / name for name in ("runner", "request", "answer")}
            files["runner"].write_bytes(program())
            files["request"].write_bytes(request)
            for name in ("runner", "request"):
                await self._place.put(files[name], f"{PLACE}/{name}")
            words = " ".join(f"{PLACE}/{name}" for name in files)
            await self._shell(f"exec {self._python} -I -S {words}", seconds + GRACE)
            await self._place.get(f"{PLACE}/answer", files["answer"])
            if files["answer"].stat().st_size > _LARGEST:
                raise ValueError("a giant answer")
            return files["answer"].read_bytes()

    async def _stop(self, number: int, exchange: "asyncio.Task[Any]") -> None:
        """A call cannot be cancelled from here: the box ends with it."""
        exchange.cancel()
        await asyncio.wait([exchange])
        await asyncio.shield(self._end("a call was cancelled"))

    async def _end(self, why: str) -> None:
        if self._dead is None:
            self._dead = why
            # That it does not end costs no answer: it is for whoever lends the place to clear away.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(TRANSFER_SECONDS):
                    await self._place.end()


class _Far:
    """There is nothing of such a box on this machine."""

    control: Any = None

    def init_pid(self) -> int | None:
        return None

    def complaint(self) -> str:
        return ""

    async def end(self) -> None:
        pass

    def release(self) -> None:
        pass


@cache
def program() -> bytes:
    """The runner as an archive that Python executes."""
    sources = [*(_HERE / "inside").glob("*.py"), _HERE.parent / "bounded.py"]
    tools = Path(toolbox.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:  # not compressed: a box may have no zlib
        for source in sorted(sources):
            archive.write(source, source.name)
        for source in sorted(tools.glob("*.py")):
            archive.write(source, f"{tools.name}/{source.name}")
        archive.writestr("__main__.py", "import once\n\nonce.main()\n")
    return packed.getvalue()


def _asked(header: dict[str, Any]) -> float:
    """Seconds that a Bash call may take on top."""
    if header.get("name") != ToolName.BASH:
        return 0.0
    try:
        given = toolbox.coerced(ToolName.BASH, header["arguments"])
        return toolbox.seconds(given.get("timeout"), given.get("timeout_ms"))
    except (ValueError, TypeError):
        return 0.0


def _frames(data: bytes) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
    """All answers in ``data``. Raises ValueError for nonsense."""
    stream = io.BytesIO(data)

    def exactly(size: int) -> bytes:
        piece = stream.read(size)
        if len(piece) != size:
            raise ValueError("an answer that is cut short")
        return piece

    while stream.tell() < len(data):
        header = wire.parse(exactly(wire.header_size(exactly(wire.LENGTH.size))))
        yield header, [exactly(size) for size in wire.blob_sizes(header)]


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__
