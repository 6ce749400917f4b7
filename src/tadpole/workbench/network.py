"""Network for a model's box by an allow-list: a proxy on this machine is all that it reaches.

The box keeps its own empty network. One listening socket in it is served from outside, by a
proxy that passes on what is for an allowed host and answers 403 to all else. The variables
``HTTP_PROXY`` and ``HTTPS_PROXY`` in the box name it.

Protects against: every other host, port and protocol (there is no route to them, and no name
service), a name that leads to this machine or its neighbours (:mod:`tadpole.workbench.allowlist`;
what was looked up is what is connected to), a repository that opens the network for itself (only
a person can, when calling the verb). All that was asked for is written down, refused or not.

Does not protect against: what is sent to an allowed host. Whatever a model reads in its box it
can send there, hidden in a request that looks harmless; with HTTPS no more than the name is seen,
and a server may serve other names at the same address. What comes back is not looked at either.
A proxy that this machine needs itself is not used: connections go out directly.
"""

import array
import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tadpole.errors import SandboxStartError
from tadpole.protocols import Sandbox, SandboxEngine, SandboxSpec
from tadpole.workbench.proxy import HEAD, Proxy

_PORT = 3128  # in the box
_PLACE = "/opt/network"  # in the box: the door, and the program that knocks at it
_SECONDS = 20.0
_AROUND = "localhost,127.0.0.1"  # the box's own servers


@asynccontextmanager
async def connected(
    engine: SandboxEngine, spec: SandboxSpec, python: str, proxy: Proxy
) -> AsyncIterator[Sandbox]:
    """A box of ``spec`` that reaches what ``proxy`` lets through; gone when this is left.

    ``python`` is the interpreter in the box. Raises SandboxError.
    """
    with tempfile.TemporaryDirectory(prefix="tadpole-network-") as place:
        directory = Path(place)
        directory.chmod(0o755)  # the user of the box is another one
        program = directory / "door.py"
        program.write_bytes((Path(__file__).with_name("inside") / "door.py").read_bytes())
        program.chmod(0o644)
        with _listening(directory) as door:
            box = await engine.start(_seen_from_inside(spec, directory))
            try:
                inside = await _opened(box, python, door)
                (directory / "door").unlink()  # nobody knocks again
            except BaseException:
                await box.close()
                raise
        server = await asyncio.start_server(proxy.serve, sock=inside, limit=HEAD)
        try:
            yield box
        finally:
            server.close()
            await proxy.end()
            await box.close()


def _seen_from_inside(spec: SandboxSpec, directory: Path) -> SandboxSpec:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    proxies = dict.fromkeys(names, f"http://127.0.0.1:{_PORT}")
    env = {**spec.env, **proxies, "NO_PROXY": _AROUND, "no_proxy": _AROUND}
    return replace(spec, mounts={**spec.mounts, _PLACE: directory}, env=env)


@contextlib.contextmanager
def _listening(directory: Path) -> Iterator[socket.socket]:
    """A socket in the file system, open for one knock."""
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as door:
        try:  # by this way: a socket's own path has room for 108 bytes only
            door.bind(f"/proc/self/fd/{here}/door")
        finally:
            os.close(here)
        (directory / "door").chmod(0o666)
        door.listen(1)
        door.settimeout(_SECONDS)
        yield door


async def _opened(box: Sandbox, python: str, door: socket.socket) -> socket.socket:
    """The listening socket of the fresh ``box``. Raises SandboxStartError."""
    argv = [python, "-I", "-S", f"{_PLACE}/door.py", str(_PORT), f"{_PLACE}/door"]
    knocking = asyncio.create_task(box.exec(argv, timeout=_SECONDS))
    taken, done = await asyncio.gather(
        asyncio.to_thread(_take, door), knocking, return_exceptions=True
    )
    if isinstance(done, BaseException):
        if isinstance(taken, socket.socket):
            taken.close()
        raise done
    if isinstance(taken, BaseException):
        why = done.stderr.strip().splitlines()[-1:] or [str(taken)]
        raise SandboxStartError(f"the box's way out could not be opened: {why[0]}") from taken
    return taken


def _take(door: socket.socket) -> socket.socket:
    """What is handed in at ``door``. Raises OSError, ValueError."""
    given = array.array("i")
    with door.accept()[0] as knock:
        knock.settimeout(_SECONDS)
        _, rights, *_ = knock.recvmsg(1, socket.CMSG_SPACE(given.itemsize))
        if not rights:
            raise ValueError("nothing was handed in")
        given.frombytes(rights[0][2][: given.itemsize])
        inside = socket.socket(fileno=given[0])
        knock.send(b"!")
    listens = inside.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if inside.family != socket.AF_INET or not listens:
        inside.close()
        raise ValueError("what was handed in does not listen")
    return inside
