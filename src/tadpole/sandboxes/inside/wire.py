"""The wire between controller and box: one frame = header length, JSON header, raw blobs.

Standard library only and Python 3.6+: this file runs inside the sandbox.
"""

import json
import struct

LENGTH = struct.Struct(">I")
LARGEST = 256 << 20  # bytes of a header or blob: refuses nonsense before memory is taken


def pack(header, blobs=()):
    """One frame as bytes. The header learns the blobs' lengths."""
    body = json.dumps(dict(header, blobs=[len(blob) for blob in blobs])).encode()
    return b"".join([LENGTH.pack(len(body)), body, *blobs])


def header_size(prefix):
    """The length of the header that follows. Raises ValueError for nonsense."""
    size = LENGTH.unpack(prefix)[0]
    if size > LARGEST:
        raise ValueError("bad frame: header of %d bytes" % size)
    return size


def parse(prefix, read):
    """The header after ``prefix``, its bytes taken from ``read(size)``."""
    return json.loads(read(header_size(prefix)).decode())


def lengths(header):
    """The blobs' lengths of a header that came in. Raises ValueError for nonsense."""
    sizes = header.get("blobs")
    if not isinstance(sizes, list) or not all(
        isinstance(size, int) and 0 <= size <= LARGEST for size in sizes
    ):
        raise ValueError("bad frame: blob lengths")
    return sizes
