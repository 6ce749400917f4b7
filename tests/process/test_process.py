import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tadpole.bounded import BoundedOutput
from tadpole.process import arun, run
from tadpole.protocols import ExecReason


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as handle:
            return handle.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_output_code_and_environment(tmp_path):
    done = run(
        ["sh", "-c", "echo out; echo err >&2; pwd; echo $X; exit 3"], cwd=tmp_path, env={"X": "1"}
    )
    assert (done.code, done.reason) == (3, ExecReason.EXITED)
    assert done.stdout == f"out\n{tmp_path}\n1\n".encode() and done.stderr == b"err\n"
    assert not done.ok and done.last_line() == "err"


def test_a_signal_is_told_apart():
    done = run(["sh", "-c", "kill -TERM $$"])
    assert (done.code, done.reason) == (128 + signal.SIGTERM, ExecReason.SIGNAL)


def test_input_is_what_is_given_and_else_closed():
    data = os.urandom(3_000_000)
    assert run(["cat"], stdin=data).stdout == data
    assert run(["cat"], timeout=60).reason is ExecReason.EXITED
    assert run(["true"], stdin=data).ok  # never read


def test_a_missing_program():
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        run(["no-such-program"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_whole_group_dies_at_the_deadline():
    script = "trap '' TERM; echo $$; (trap '' TERM; echo $BASHPID; sleep 60) & while :; do :; done"
    done = run(["bash", "-c", script], timeout=0.5)
    assert done.reason is ExecReason.TIMEOUT and done.code == 137
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2 and not any(alive(pid) for pid in pids)


def test_a_grandchild_with_the_pipe_does_not_hold_the_call():
    done = run(["sh", "-c", "sleep 600 & echo $!"], timeout=60)
    assert done.ok and not alive(int(done.stdout))


def test_a_grandchild_in_its_own_session_does_not_hold_the_call():
    done = run(["sh", "-c", "setsid sh -c 'sleep 20' & echo done"], timeout=60)
    assert done.ok and done.seconds < 19 and done.stdout == b"done\n"


def test_both_ends_are_kept():
    done = run(["seq", "100000"], head=10, tail=10)
    assert done.stdout.startswith(b"1\n2\n3\n4\n5\n") and done.stdout.endswith(b"99\n100000\n")
    assert done.stdout_cut == 588895 - 20 and b"588875 bytes cut" in done.stdout


@pytest.mark.parametrize("pieces", [[b"abc"] * 100, [b"a" * 300_000, b"b"], [b"", b"x" * 7]])
def test_bounded_output_equals_slicing(pieces):
    whole, bounded = b"".join(pieces), BoundedOutput(5, 4)
    for piece in pieces:
        bounded.feed(piece)
    kept = bounded.value()
    assert kept.startswith(whole[:5]) and kept.endswith(whole[-4:])
    assert bounded.cut == max(0, len(whole) - 9) and bounded.total == len(whole)


async def test_many_at_once():
    done = await asyncio.gather(*(arun(["sh", "-c", f"sleep 0.2; echo {i}"]) for i in range(12)))
    assert [one.stdout for one in done] == [f"{i}\n".encode() for i in range(12)]


async def test_cancelling_kills_the_group(tmp_path):
    pid = tmp_path / "pid"
    task = asyncio.create_task(arun(["bash", "-c", f"echo $$ > {pid}; sleep 60 & wait"]))
    while not pid.exists() or not pid.read_text().strip():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(int(pid.read_text()))


async def test_async_deadline_and_missing_program():
    assert (await arun(["sleep", "60"], timeout=0.2)).reason is ExecReason.TIMEOUT
    with pytest.raises(FileNotFoundError):
        await arun(["no-such-program"])


def test_keyboard_interrupt_kills_the_group(tmp_path):
    pid = tmp_path / "pid"
    script = f"from tadpole.process import run; run(['bash', '-c', 'echo $$ > {pid}; sleep 60'])"
    controller = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    while not pid.exists() or not pid.read_text().strip():
        time.sleep(0.01)
    controller.send_signal(signal.SIGINT)
    assert controller.wait(timeout=60) != 0
    assert not alive(int(pid.read_text()))


def test_no_descriptors_and_threads_are_left():
    run(["true"])
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        run(["true"], stdin=b"x")
        asyncio.run(arun(["true"]))
    assert len(os.listdir("/proc/self/fd")) == before
    deadline = time.monotonic() + 5
    while threading.active_count() > threads:
        assert time.monotonic() < deadline
        time.sleep(0.01)
