"""What runs inside a box is light, and its parts do what the modules do that it does without."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tadpole
from tadpole import process
from tadpole.sandboxes.binaries import box_python
from tadpole.sandboxes.inside import wire
from tadpole.sandboxes.inside.child import Child

HEAVY = {"re", "json", "typing", "subprocess", "contextlib", "enum", "collections", "importlib"}
PACKAGE = Path(tadpole.__file__).parent


def test_a_box_starts_without_what_takes_long_to_import():
    places = [str(PACKAGE / "sandboxes/inside"), str(PACKAGE)]
    code = f"import sys; sys.path[:0] = {places}; import runner; print(*sys.modules)"
    done = process.run([box_python(), "-I", "-S", "-B", "-c", code], timeout=60)
    assert done.ok, done.stderr
    loaded = set(done.stdout.decode().split())
    assert "runner" in loaded and not loaded & HEAVY


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(header=st.dictionaries(st.text(), VALUES, max_size=4), blob=st.binary(max_size=20))
def test_a_frame_is_json_and_comes_back(header, blob):
    header.pop("blobs", None)
    frame = wire.pack(header, [blob])
    body = frame[4 : 4 + wire.header_size(frame[:4])]
    assert json.loads(body) == wire.parse(body) == {**header, "blobs": [len(blob)]}
    assert frame.endswith(blob)


@pytest.mark.parametrize("body", [b"", b"[", b'{"a":}', b"[]", b"{} {}", b"nope", b"1", b"\xff"])
def test_what_is_no_header_is_refused(body):
    with pytest.raises(ValueError):
        wire.parse(body)


def started(*argv, fed=False, **more):
    options = {"environment": {"PATH": "/usr/bin:/bin"}, "directory": "/", "kept": (), **more}
    return Child(list(argv), fed=fed, prepare=lambda: None, **options)


def test_a_child_and_how_it_ends():
    cat = started("cat", fed=True)
    os.write(cat.stdin, b"hello")
    cat.close_stdin()
    assert (os.read(cat.stdout, 100), cat.wait()) == (b"hello", 0)
    cat.close()
    script = "import os, sys; print(os.getcwd(), os.getsid(0) == os.getpid(), sorted(os.environ))"
    code = script + "; sys.stderr.write('oops'); sys.exit(7)"
    other = started(sys.executable, "-I", "-S", "-c", code, directory="/usr")
    assert os.read(other.stdout, 100).startswith(b"/usr True [")
    assert (os.read(other.stderr, 100), other.wait(), other.poll()) == (b"oops", 7, 7)
    other.close()
    slow = started("sleep", "600")
    assert slow.poll() is None
    os.kill(slow.pid, signal.SIGTERM)
    assert slow.wait() == -signal.SIGTERM
    slow.close()


def test_a_child_that_cannot_be_started_leaves_nothing():
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        started("/no/such/program")
    with pytest.raises(NotADirectoryError):
        started("true", directory="/etc/passwd")
    with pytest.raises(OSError, match="too long"):
        started("true", "x" * (1 << 21))
    with pytest.raises(ValueError, match="null"):
        started("true", "a\0b")
    assert os.listdir("/proc/self/fd") == before


def test_a_child_keeps_what_it_is_given_and_no_more():
    read, write = os.pipe()
    script = "import os; print(*sorted(map(int, os.listdir('/proc/self/fd'))))"
    child = started(sys.executable, "-I", "-S", "-c", script, kept=(write,))
    found = os.read(child.stdout, 200).split()
    assert child.wait() == 0
    assert str(write).encode() in found and str(read).encode() not in found
    child.close()
    os.close(read)
    os.close(write)
