"""Output of unknown length in bounded memory: both ends are kept, the middle is counted.

Standard library only and Python 3.6+: this file also runs inside the sandbox.
"""


class BoundedOutput:
    """Keeps the first ``head`` and the last ``tail`` bytes of what is fed to it."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_size, self._tail_size = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_size + 65536:  # trims rarely: amortised linear
            self._trim()

    def _trim(self) -> None:
        if len(self._tail) > self._tail_size:
            del self._tail[: len(self._tail) - self._tail_size]

    @property
    def cut(self) -> int:
        """Bytes of the middle that were dropped."""
        self._trim()
        return self.total - len(self._head) - len(self._tail)

    def value(self) -> bytes:
        """What was kept; where something was dropped, one line in the middle says how much."""
        cut = self.cut
        note = b"\n[... %d bytes cut ...]\n" % cut if cut else b""
        return bytes(self._head) + note + bytes(self._tail)
