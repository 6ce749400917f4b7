"""A proxy for HTTP and HTTPS that passes on what is for an allowed host, and nothing else.

Protects against and does not protect against: see :mod:`tadpole.workbench.network`. One request
a connection; heads and times are bounded, and what is not well-formed is refused.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from tadpole.trace import Record
from tadpole.workbench.allowlist import Allowed, entry_for, split

HEAD = 32 << 10  # bytes of a request's head
_HEAD_SECONDS = 30.0
_CONNECT_SECONDS = 20.0
_IDLE_SECONDS = 120.0
_CHUNK = 1 << 16
_HOSTS = 200  # of which is told
_CONNECTIONS = 64  # at a time
_HOP = ("connection", "proxy-connection", "proxy-authorization", "keep-alive", "host")


class Reached(Record):
    """What was asked of one host and port."""

    host: str
    port: int
    allowed: bool
    times: int = 0
    sent: int = 0  # bytes
    received: int = 0


class Refused(Exception):
    """A request that is not passed on: (status, why)."""


class Proxy:
    """Serves the connections of one box. ``tell`` hears of each that ended or was refused."""

    def __init__(
        self, entries: tuple[Allowed, ...], tell: Callable[[Reached], None] = lambda seen: None
    ) -> None:
        self._entries, self._tell = entries, tell
        self._seen: dict[tuple[str, int, bool], Reached] = {}
        self._open: set[asyncio.Task[None]] = set()

    @property
    def reached(self) -> tuple[Reached, ...]:
        """All that was asked for, in order; a bounded number of hosts."""
        return tuple(self._seen.values())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, for :func:`asyncio.start_server` with ``limit`` :data:`HEAD`."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= _CONNECTIONS:
            writer.close()
            return
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except Refused as refused:
            status, why = refused.args
            body = f"tadpole: {why}\n".encode()
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            with contextlib.suppress(OSError, TimeoutError):
                writer.write(head.encode() + body)
                await asyncio.wait_for(writer.drain(), _IDLE_SECONDS)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            pass  # a client or a server that went away
        finally:
            self._open.discard(task)
            writer.close()

    async def end(self) -> None:
        """Cut what is still open."""
        for task in (tasks := list(self._open)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_SECONDS)
            verb, host, port, onward = _read(head)
        except (asyncio.LimitOverrunError, UnicodeDecodeError, ValueError):
            raise Refused("400 Bad Request", "no request that a proxy can pass on") from None
        entry = entry_for(self._entries, host, port)
        if entry is None:
            self._note(host, port, False)
            listed = ", ".join(map(str, self._entries))
            raise Refused(
                "403 Forbidden", f"{host}:{port} is not allowed (only {listed}); nothing was sent"
            )
        try:
            there, back = await asyncio.wait_for(_connect(entry, host, port), _CONNECT_SECONDS)
        except PermissionError as error:
            self._note(host, port, False)
            raise Refused("403 Forbidden", str(error)) from None
        except (OSError, TimeoutError) as error:
            self._note(host, port, True)
            raise Refused("502 Bad Gateway", f"{host}:{port} cannot be reached: {error}") from None
        moved = [len(onward), 0]
        try:
            if verb == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back.write(onward)
            pumps = (_pump(reader, back, moved, 0), _pump(there, writer, moved, 1))
            await asyncio.gather(*pumps)
        finally:
            back.close()
            self._note(host, port, True, *moved)

    def _note(self, host: str, port: int, allowed: bool, sent: int = 0, received: int = 0) -> None:
        key = (host[:253], port, allowed)
        if key not in self._seen and len(self._seen) >= _HOSTS:
            return
        old = self._seen.get(key) or Reached(host=key[0], port=port, allowed=allowed)
        counts = {"times": old.times + 1, "sent": old.sent + sent}
        new = old.model_copy(update=counts | {"received": old.received + received})
        self._seen[key] = new
        self._tell(new)


def _read(head: bytes) -> tuple[str, str, int, bytes]:
    """(verb, host, port, what is passed on) of a request's head. Raises ValueError."""
    first, *rest = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    verb, target, version = first.split(" ")
    if verb == "CONNECT":
        host, port = split(target)
        if not host or not port:
            raise ValueError(target)
        return verb, host, port, b""
    url = urlsplit(target)
    host, port = split(url.netloc.rpartition("@")[2])
    if url.scheme != "http" or not host or port is None or not version.startswith("HTTP/1."):
        raise ValueError(target)
    path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
    # The name that was checked is the name that is asked for, whatever the request's own says.
    kept = [line for line in rest if line.partition(":")[0].strip().lower() not in _HOP]
    lines = [f"{verb} {path} {version}", f"Host: {url.netloc.rpartition('@')[2]}", *kept]
    return (
        verb,
        host,
        port or 80,
        "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"),
    )


async def _connect(
    entry: Allowed, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first address of ``host`` that answers. Raises PermissionError where none may be."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    places = list(dict.fromkeys(str(item[4][0]) for item in found))
    may = [p for p in places if entry.may_be_at(ipaddress.ip_address(p.partition("%")[0]))]
    if not may:
        raise PermissionError(
            f"{host} is at {', '.join(places)}, which the entry {entry} does not cover: "
            "nothing was sent"
        )
    last: OSError | None = None
    for place in may:
        try:
            return await asyncio.open_connection(place, port)
        except OSError as error:
            last = error
    assert last is not None
    raise last


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: list[int], way: int
) -> None:
    """Pass bytes on until there are no more."""
    while data := await asyncio.wait_for(reader.read(_CHUNK), _IDLE_SECONDS):
        moved[way] += len(data)
        writer.write(data)
        await asyncio.wait_for(writer.drain(), _IDLE_SECONDS)
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()
