"""The wire between controller and box: one frame = header length, JSON header, raw blobs.

Standard library only and Python 3.6+: this file runs inside the sandbox.
"""

import struct

# What json itself is made of. The module around it needs ``re``, and that is as long as the whole
# start of an interpreter.
from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LENGTH = struct.Struct(">I")
LARGEST = 256 << 20  # bytes of a header or blob: refuses nonsense before memory is taken


class _Plain:
    """How numbers and objects are read: as they are."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def _refused(value: object) -> None:
    raise TypeError(f"{type(value).__name__} cannot be sent")


_scan = make_scanner(_Plain)  # type: ignore[arg-type]
_encode = make_encoder(
    None, _refused, encode_basestring_ascii, None, ": ", ", ", False, False, True
)


def pack(header: "dict[str, Any]", blobs: "list[bytes]") -> bytes:
    """One frame. The header learns the blobs' lengths.

    Raises TypeError for what JSON cannot hold, ValueError for what is too large to be read.
    """
    header = dict(header, blobs=[len(blob) for blob in blobs])
    body = "".join(_encode(header, 0)).encode()
    largest = max([len(body), *header["blobs"]])
    if largest > LARGEST:
        raise ValueError(f"{largest} bytes are too many for one message")
    return b"".join([LENGTH.pack(len(body)), body, *blobs])


def header_size(prefix: bytes) -> int:
    """The length of the header that follows. Raises ValueError for nonsense."""
    size = int(LENGTH.unpack(prefix)[0])
    if size > LARGEST:
        raise ValueError(f"bad frame: header of {size} bytes")
    return size


def parse(body: bytes) -> "dict[str, Any]":
    """The header. Raises ValueError for nonsense."""
    text = body.decode()
    try:
        header, end = _scan(text, 0)
    except (StopIteration, SystemError):  # the second where it has no module to name an error of
        raise ValueError("bad frame: no JSON") from None
    if not isinstance(header, dict) or end != len(text):
        raise ValueError("bad frame: no header")
    return header


def blob_sizes(header: "dict[str, Any]") -> "list[int]":
    """The lengths of the blobs that follow a header. Raises ValueError for nonsense."""
    sizes = header.get("blobs")
    if not isinstance(sizes, list) or not all(
        isinstance(size, int) and 0 <= size <= LARGEST for size in sizes
    ):
        raise ValueError("bad frame: blob lengths")
    return sizes
