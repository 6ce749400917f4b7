"""Start, end, cancellation and death: what is left must be nothing."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tadpole.errors import SandboxDied
from tadpole.protocols import Limits, SandboxSpec
from tadpole.sandboxes.orphans import sweep
from tadpole.sandboxes.probe import command_lines
from tadpole.settings import BoxKind


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def children(of="self"):
    """Process ids that a process has started, in whichever thread."""
    threads = Path(f"/proc/{of}/task").glob("*/children")
    return {pid for listed in threads for pid in listed.read_text().split()}


async def test_eight_in_parallel_do_not_mix(start, census):
    boxes = await asyncio.gather(*(start() for _ in range(8)))

    async def work(number, box):
        script = f"echo {number} > mine; sleep {census.mark} & sleep 0.2; cat mine"
        result = await box.exec(["/bin/bash", "-c", script], timeout=60)
        return result.stdout, [change.content for change in await box.delta()]

    results = await asyncio.gather(*(work(i, box) for i, box in enumerate(boxes)))
    assert results == [(f"{i}\n", [f"{i}\n".encode()]) for i in range(8)]
    assert census.count() == 0


async def test_calls_of_one_box_take_turns(box):
    calls = [box.exec(["/bin/echo", str(i)], timeout=20) for i in range(5)]
    assert [r.stdout for r in await asyncio.gather(*calls)] == [f"{i}\n" for i in range(5)]


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_start_that_is_cancelled_at_any_moment_leaves_no_process(engine, tree, step):
    for moment in range(0, 30, step):
        starting = asyncio.create_task(engine.start(SandboxSpec(tree)))
        await asyncio.sleep(moment / 1000)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await starting).close()
    left = [line for line in command_lines() if str(tree).encode() in line]
    assert left == []


async def test_close_leaves_no_process_no_file_and_no_descriptor(engine, tree, census):
    await (await engine.start(SandboxSpec(tree))).close()
    before, files, ours = descriptors(), set(Path("/tmp").glob("*")), children()
    for _ in range(3):
        box = await engine.start(SandboxSpec(tree))
        running = asyncio.create_task(box.exec(["sleep", census.mark], timeout=60))
        while census.count() == 0:
            await asyncio.sleep(0.01)
        init = box.init_pid()
        await box.close()
        assert census.count() == 0
        assert not os.path.exists(f"/proc/{init}")
        with pytest.raises(SandboxDied):
            await running
    assert descriptors() == before and children() == ours
    assert {path for path in set(Path("/tmp").glob("*")) - files if "box" in path.name} == set()


async def test_cancelling_a_command_kills_it_and_keeps_the_box_in_step(box, census):
    for _ in range(3):
        running = asyncio.create_task(box.exec(["sleep", census.mark], timeout=60))
        while census.count() == 0:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert census.count() == 0
        result = await box.exec(["echo", "next"], timeout=20)
        assert result.stdout == "next\n"


async def test_cancelling_a_bash_tool_kills_its_command(box, census):
    arguments = {"command": f"sleep {census.mark}", "timeout": 60}
    running = asyncio.create_task(box.tool("Bash", arguments))
    while census.count() == 0:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert census.count() == 0
    assert (await box.tool("Read", {"file_path": "pkg/core.py"})).text == "value = 1\n"


async def test_cancelling_one_that_waits_for_its_turn_leaves_the_other(box):
    first = asyncio.create_task(box.exec(["sleep", "0.5"], timeout=20))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(box.exec(["echo", "second"], timeout=20))
    await asyncio.sleep(0.05)
    second.cancel()
    assert (await first).code == 0
    assert (await box.exec(["echo", "third"], timeout=20)).stdout == "third\n"


async def test_a_dead_box_is_an_error_and_not_a_hang(box):
    running = asyncio.create_task(box.exec(["sleep", "60"], timeout=60))
    await asyncio.sleep(0.2)
    os.kill(box.init_pid(), signal.SIGKILL)
    with pytest.raises(SandboxDied):
        await asyncio.wait_for(running, 10)
    with pytest.raises(SandboxDied):
        await box.delta()


def test_the_end_of_the_thread_that_started_it_does_not_end_it(engine, tree):
    loop = asyncio.new_event_loop()
    made = []
    start = loop.create_task(engine.start(SandboxSpec(tree)))
    thread = threading.Thread(target=lambda: made.append(loop.run_until_complete(start)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    try:
        result = loop.run_until_complete(made[0].exec(["echo", "alive"], timeout=20))
        assert result.stdout == "alive\n"
    finally:
        loop.run_until_complete(made[0].close())
        loop.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a launcher")
async def test_a_launcher_that_is_killed_costs_neither_boxes_nor_starts(start, kind):
    if kind is BoxKind.CONTAINER:
        pytest.skip("it has none")
    first = await start()
    [launcher] = [
        pid for pid in children() if "launch.py" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    os.kill(int(launcher), signal.SIGKILL)
    second = await start()
    for box in (first, second):
        assert (await box.exec(["echo", "alive"], timeout=60)).stdout == "alive\n"
    await first.close()
    assert (await second.exec(["echo", "alive"], timeout=60)).stdout == "alive\n"


CONTROLLER = """
import asyncio, sys
from pathlib import Path
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.sandboxes.container import ContainerEngine
from tadpole.settings import BoxKind
async def main():
    kind, toolbox = BoxKind(sys.argv[4]), Path(sys.argv[2])
    contained = kind is BoxKind.CONTAINER
    engine = ContainerEngine("", toolbox) if contained else BubblewrapEngine(toolbox, kind)
    boxes = [await engine.start(SandboxSpec(Path(sys.argv[1]))) for _ in range(2)]
    print("up", flush=True)
    await asyncio.gather(*(box.exec(["sleep", sys.argv[3]], timeout=100) for box in boxes))
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_everything_dies_with_the_controller(tree, kind, toolbox, census, how, tmp_path):
    (tmp_path / "scratch").mkdir()
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, tree, toolbox, census.mark, kind.value],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
    )
    deadline = time.monotonic() + 20
    while sum(line.startswith(f"sleep\0{census.mark}".encode()) for line in command_lines()) < 2:
        assert time.monotonic() < deadline and controller.poll() is None
        time.sleep(0.05)
    its = children(controller.pid)
    controller.send_signal(how)
    controller.wait(timeout=20)
    deadline = time.monotonic() + 5
    while (
        census.count()
        or any(str(tree).encode() in line for line in command_lines())
        or any(Path(f"/proc/{pid}").exists() for pid in its)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if how is signal.SIGKILL and kind is not BoxKind.CONTAINER:
        assert not [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]


CUT = """
import subprocess, sys, time
from pathlib import Path
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes import bubblewrap
from tadpole.sandboxes.layout import Layout
class Held(Layout):
    def _arguments(self, sources, status):  # the monitor waits for a byte on the wire
        held = ["--unshare-user", "--info-fd", "2", "--userns-block-fd", "0"]
        return [*held, *super()._arguments(sources, status)]
made = Held(SandboxSpec(Path(sys.argv[1])), bubblewrap.bubblewrap(), bubblewrap.TOOLBOX)
monitor = bubblewrap._spawn(made)
while monitor.init_pid() is None: time.sleep(0.01)
other = subprocess.Popen(["sleep", sys.argv[2]], pass_fds=[monitor.control.fileno()])
print(monitor.init_pid(), other.pid, flush=True)
time.sleep(600)
"""


async def test_what_a_start_that_is_cut_by_a_kill_leaves_ends_with_the_next_one(start, tree, kind):
    """The only moment in which a process outlives its controller: bubblewrap's own start."""
    if kind is BoxKind.CONTAINER:
        pytest.skip("another program starts it")
    running = await start()
    controller = subprocess.Popen(
        [sys.executable, "-c", CUT, tree.parent, "600"], stdout=subprocess.PIPE, text=True
    )
    init, holder = map(int, controller.stdout.readline().split())
    try:
        assert init not in sweep()  # it is being started
        controller.kill()
        controller.wait(timeout=20)
        deadline = time.monotonic() + 20
        while init not in sweep():
            assert time.monotonic() < deadline and Path(f"/proc/{init}").exists()
            await asyncio.sleep(0.02)
        while Path(f"/proc/{init}").exists():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    finally:
        controller.kill()
        os.kill(holder, signal.SIGKILL)
    assert (await running.exec(["echo", "alive"], timeout=60)).stdout == "alive\n"


@pytest.mark.slow
async def test_fifty_boxes_do_not_suffer_from_a_fork_bomb_in_one(start, census):
    boxes = await asyncio.gather(*(start(Limits(processes=64, cpu_seconds=60)) for _ in range(50)))

    async def median() -> float:
        seconds = []
        for box in boxes[1:]:
            begun = time.monotonic()
            assert (await box.exec(["echo", "x"], timeout=60)).stdout == "x\n"
            seconds.append(time.monotonic() - begun)
        return sorted(seconds)[len(seconds) // 2]

    quiet = await median()
    bomb = f"f() {{ sleep {census.mark} & f | f & }}; f; sleep 5"
    running = asyncio.create_task(boxes[0].exec(["/bin/bash", "-c", bomb], timeout=20))
    while census.count() == 0 and not running.done():
        await asyncio.sleep(0.01)
    loud = await median()
    await running
    assert census.count() == 0
    assert loud < 5 * quiet, (quiet, loud)


def test_no_deadline_hangs_on_the_clock_that_can_be_set():
    import tadpole.sandboxes

    for path in Path(tadpole.sandboxes.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "time.time(" not in text and "datetime" not in text, path
