"""A runner that was taken over answers what it likes: the host ends it and believes nothing."""

import asyncio
import socket
import threading

import pytest

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.protocols import Limits, SandboxSpec
from tadpole.sandboxes.inside import wire
from tadpole.sandboxes.session import Session
from tadpole.settings import BoxKind

UP = {"overlay": True, "nested": True, "inodes": True, "notes": []}


class Liar:
    """The processes behind a box whose every answer but the first is ``answer``."""

    def __init__(self, answer, first=None):
        self.control, self._theirs = socket.socketpair()
        self._answer, self._first, self.ended = answer, first or UP, False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with self._theirs as wire_end, wire_end.makefile("rb") as requests:
            try:
                for number in range(1, 100):
                    header = wire.parse(requests.read(wire.header_size(requests.read(4))))
                    for size in wire.blob_sizes(header):
                        requests.read(size)
                    answer = {**self._first, "id": 1} if number == 1 else self._answer
                    if isinstance(answer, dict):
                        answer = {"id": number, **answer}
                        blobs = answer.pop("raw", [])
                        answer = wire.pack(answer, blobs)
                    wire_end.sendall(answer)
            except Exception:
                return

    def init_pid(self):
        return None

    def complaint(self):
        return ""

    async def end(self):
        self.ended = True

    def release(self):
        pass


async def lying(answer) -> tuple[Session, Liar]:
    liar = Liar(answer)
    session = Session(BoxKind.SESSION, liar, Limits(call_seconds=2.0))
    await session.connect(SandboxSpec(tree=None), b"")
    return session, liar


def file(path, deleted=False):
    return {"path": path, "deleted": deleted, "executable": False}


DELTAS = [
    {"files": [file(path)], "left_out": {}, "raw": [b"x"]}
    for path in ("/etc/passwd", "../x", "a/../../x", "a//b", "./a", "", "a\0b", ".git/config", 7)
] + [
    {"files": [file("a"), file("a")], "left_out": {}, "raw": [b"x", b"y"]},
    {"files": [file("a")], "left_out": {}, "raw": []},
    {"files": [file("\ud800")], "left_out": {}, "raw": [b"x"]},
    {"files": [file(f"f{n}") for n in range(5001)], "left_out": {}, "raw": [b""] * 5001},
    {"files": "abc", "left_out": {}},
    {"left_out": {}},
    {"files": [], "left_out": 7},
    {"files": [], "left_out": {"link": [float("inf"), []]}},
    {"files": [], "left_out": {"link": [1, [7]]}},
    {"files": [], "left_out": {"whatever": [1, []]}},
]


@pytest.mark.parametrize("answer", DELTAS)
async def test_a_delta_that_no_work_tree_has(answer):
    session, liar = await lying(answer)
    with pytest.raises(SandboxDied, match="nonsense"):
        await session.delta()
    assert liar.ended
    with pytest.raises(SandboxDied, match="gone"):
        await session.delta()
    await session.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"text": 7, "error": False, "seconds": 0},
        {"text": "x" * (2 << 20), "error": False, "seconds": 0},
        {"error": False},
        {"text": "x", "error": "maybe?", "seconds": "long"},
        {"failure": "x", "errno": "y"},
        {"id": 99, "text": "x"},
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x05nope!",
        wire.LENGTH.pack(200_000) + b"[" * 200_000,
    ],
)
async def test_an_answer_that_is_none(answer):
    session, liar = await lying(answer)
    with pytest.raises(SandboxDied):
        await asyncio.wait_for(session.tool("Read", {}), 20)
    assert liar.ended
    await session.close()


async def test_a_result_without_its_output():
    session, _ = await lying({"code": 0, "reason": "exited", "seconds": 0.0})
    with pytest.raises(SandboxDied, match="nonsense"):
        await session.exec(["true"], timeout=1)
    await session.close()


async def test_a_box_that_comes_up_wrong_does_not_start():
    liar = Liar({}, first={"overlay": True})
    session = Session(BoxKind.SESSION, liar, Limits(call_seconds=1.0))
    with pytest.raises(SandboxStartError, match="nonsense"):
        await session.connect(SandboxSpec(tree=None), b"")
    assert liar.ended


async def test_a_close_that_is_cancelled_goes_on_and_the_next_one_waits_for_it():
    """What it held (descriptors, the launcher) was never given back."""
    liar = Liar({})
    go, released = asyncio.Event(), []

    async def end():
        await go.wait()
        liar.ended = True

    liar.end, liar.release = end, lambda: released.append(liar.ended)
    session = Session(BoxKind.SESSION, liar, Limits(call_seconds=1.0))
    await session.connect(SandboxSpec(tree=None), b"")
    first = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(session.close())
    await asyncio.sleep(0.01)
    assert not second.done() and not released
    go.set()
    await asyncio.wait_for(second, 20)
    await session.close()
    assert released == [True]
