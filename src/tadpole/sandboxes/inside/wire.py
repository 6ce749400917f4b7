"""The wire between controller and box: one frame = header length, JSON header, raw blobs.

Standard library only and Python 3.6+: this file runs inside the sandbox.
"""

import json
import struct
from typing import Any

LENGTH = struct.Struct(">I")
LARGEST = 256 << 20  # bytes of a header or blob: refuses nonsense before memory is taken


def pack(header: "dict[str, Any]", blobs: "list[bytes]") -> bytes:
    """One frame. The header learns the blobs' lengths."""
    body = json.dumps(dict(header, blobs=[len(blob) for blob in blobs])).encode()
    return b"".join([LENGTH.pack(len(body)), body, *blobs])


def header_size(prefix: bytes) -> int:
    """The length of the header that follows. Raises ValueError for nonsense."""
    size = int(LENGTH.unpack(prefix)[0])
    if size > LARGEST:
        raise ValueError(f"bad frame: header of {size} bytes")
    return size


def parse(body: bytes) -> "dict[str, Any]":
    """The header. Raises ValueError for nonsense."""
    header = json.loads(body.decode())
    if not isinstance(header, dict):
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
