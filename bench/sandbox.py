"""Times the sandbox beside its bars: one line a figure, median and p95, all in one run.

python bench/sandbox.py [--engine session|flat|container] [--rounds N] [--boxes N]
"""

import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from tadpole import process
from tadpole.errors import SandboxError
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes import ladder
from tadpole.sandboxes.probe import Engine
from tadpole.sandboxes.session import Session
from tadpole.settings import BoxKind

FILES, FILE_BYTES = 1000, 5000
STARTERS = 4  # boxes that are being started at a time

# Bars: on two idle cores.
START_MS, TOOL_MS, BASH_MS = 90.0, 0.5, 20.0
STARTS_PER_SECOND, BOX_MIB = 30.0, 10.0
FRESH_RATIO, PODMAN_RATIO = 20.0, 5.0

_FRESH = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tadpole.leaf import toolbox
arguments = json.loads(sys.argv[2])
print(json.dumps(toolbox.call("Read", arguments, sys.argv[3], None)))
"""


@click.command()
@click.option(
    "--engine",
    type=click.Choice([kind.value for kind in ladder.LADDER]),
    default=BoxKind.SESSION.value,
    help="Which engine's boxes.",
)
@click.option("--rounds", default=40, help="Repetitions of starts and Bash calls; tools: x 25.")
@click.option("--boxes", default=256, help="Idle boxes at a time.")
def main(engine: str, rounds: int, boxes: int) -> None:
    """Time the sandbox."""
    with tempfile.TemporaryDirectory(prefix="tadpole-bench-") as directory:
        top = Path(directory)
        top.chmod(0o755)
        tree = _tree(top / "tree")
        tempfile.tempdir = str(top / "tmp")  # ours alone, so that what is left in it is ours
        (top / "tmp").mkdir(mode=0o755)
        chosen = ladder.make(BoxKind(engine))
        click.echo(
            f"{chosen.kind.value}: {chosen.made_of}; {os.cpu_count()} cores, load ", nl=False
        )
        click.echo(" ".join(f"{load:.1f}" for load in os.getloadavg()))
        asyncio.run(_all(chosen, tree, rounds, boxes))


async def _all(engine: Engine, tree: Path, rounds: int, boxes: int) -> None:
    before = _leftovers()
    starts, closes = await _starts(engine, tree, rounds)
    _show(f"start, {FILES:,} files", starts, f"<= {START_MS:g} ms", START_MS)
    _show("close", closes)
    box = await engine.start(SandboxSpec(tree=tree))
    try:
        await _tools(box, tree, rounds)
    finally:
        await box.close()
    await _many(engine, tree, boxes)
    left = _leftovers()
    _line(
        "left after close of all",
        f"{left[0] - before[0]} processes, "
        f"{left[1] - before[1]} mounts, {left[2] - before[2]} files",
        "0, 0, 0",
        left == before,
    )


async def _starts(engine: Engine, tree: Path, rounds: int) -> tuple[list[float], list[float]]:
    spec, starts, closes = SandboxSpec(tree=tree), [], []
    await (await engine.start(spec)).close()
    for _ in range(rounds):
        begun = time.perf_counter()
        box = await engine.start(spec)
        up = time.perf_counter()
        await box.close()
        starts.append(up - begun)
        closes.append(time.perf_counter() - up)
    return starts, closes


async def _tools(box: Session, tree: Path, rounds: int) -> None:
    path = "pkg0/module0.py"
    text = (tree / path).read_text()
    calls: dict[str, Callable[[int], dict[str, object]]] = {
        "Read": lambda _: {"file_path": path},
        "Write": lambda turn: {"file_path": path, "content": f"turn = {turn}\n{text}"},
        "Edit": lambda turn: {
            "file_path": path,
            "old_string": f"turn = {turn + rounds * 25 - 1}\n" if turn == 0 else f"now = {turn}\n",
            "new_string": f"now = {turn + 1}\n",
        },
    }
    reads: list[float] = []
    for name, arguments in calls.items():
        seconds = await _times(
            lambda turn, n=name, a=arguments: _call(box, n, a(turn)), rounds * 25
        )
        _show(f"{name}, {FILE_BYTES // 1000} KB file", seconds, f"<= {TOOL_MS:g} ms", TOOL_MS)
        reads = seconds if name == "Read" else reads
    bash = await _times(lambda _: _call(box, "Bash", {"command": "true"}), rounds)
    _show("Bash true", bash, f"<= {BASH_MS:g} ms", BASH_MS)
    fresh = [_fresh(tree, path) for _ in range(max(3, rounds // 4))]
    _show("a fresh Python runner for one Read", fresh)
    _ratio("one Read, that many times faster", fresh, reads, FRESH_RATIO)
    podman = await _podman(max(3, rounds // 4))
    if podman:
        _show("podman exec true", podman)
        _ratio("Bash true, that many times faster", podman, bash, PODMAN_RATIO)
    else:
        _line("podman exec true", "no podman that works here", f">= {PODMAN_RATIO:g} x", None)


async def _call(box: Session, name: str, arguments: dict[str, object]) -> None:
    seen = await box.tool(name, arguments)
    if seen.error:
        sys.exit(f"{name} failed: {seen.text}")


def _fresh(tree: Path, path: str) -> float:
    """Seconds of one Read by a Python that is started for it, without any isolation."""
    source = Path(__file__).resolve().parent.parent / "src"
    argument = f'{{"file_path": "{path}"}}'
    begun = time.perf_counter()
    done = process.run([sys.executable, "-I", "-S", "-c", _FRESH, source, argument, tree])
    if not done.ok:
        sys.exit(done.last_line())
    return time.perf_counter() - begun


async def _podman(rounds: int) -> list[float]:
    """Seconds of ``podman exec CONTAINER true``; none where there is no podman."""
    program = shutil.which("podman")
    if program is None:
        return []
    try:
        made = await ladder.make(BoxKind.CONTAINER).start(SandboxSpec(tree=Path("/usr/share/doc")))
    except SandboxError:  # installed, and this kernel or its settings refuse it
        return []
    try:
        listed = process.run([program, "ps", "--latest", "--format", "{{.Names}}"], timeout=30)
        argv = [program, "exec", listed.stdout.decode().strip(), "/bin/true"]
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            if not process.run(argv, timeout=60).ok:
                return []
            times.append(time.perf_counter() - begun)
        return times
    finally:
        await made.close()


async def _many(engine: Engine, tree: Path, boxes: int) -> None:
    turn = asyncio.Semaphore(STARTERS)
    failures: list[BaseException] = []
    running: list[Session] = []

    async def one() -> None:
        async with turn:
            try:
                running.append(await engine.start(SandboxSpec(tree=tree)))
            except Exception as error:
                failures.append(error)

    free = _available()
    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(boxes)))
    rate = boxes / (time.perf_counter() - begun)
    taken = (free - _available()) / max(1, len(running)) / (1 << 20)
    pages = sum(map(_pages, _descendants())) / max(1, len(running)) / (1 << 20)
    begun = time.perf_counter()
    await asyncio.gather(*(box.close() for box in running))
    closed = time.perf_counter() - begun
    name = f"{boxes} idle boxes"
    _line(f"{name}: failures", str(len(failures)), "0", not failures)
    if failures:
        click.echo(f"  the first: {failures[0]}")
    _line(
        f"{name}: starts", f"{rate:.1f}/s", f">= {STARTS_PER_SECOND:g}/s", rate >= STARTS_PER_SECOND
    )
    # The second counts what the kernel holds for them too, and what else the machine does.
    bar = f"<= {BOX_MIB:g} MiB"
    _line(f"{name}: pages each", f"{pages:.1f} MiB", bar, pages <= BOX_MIB)
    _line(f"{name}: free memory less, each", f"{taken:.1f} MiB", bar, taken <= BOX_MIB)
    _line(f"{name}: close of all", f"{closed:.2f} s", "", None)


def _tree(top: Path) -> Path:
    for number in range(FILES):
        path = top / f"pkg{number % 40}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = f"value_{number} = {number}  # what a line of a module looks like\n"
        path.write_text((line * (FILE_BYTES // len(line) + 1))[:FILE_BYTES])
    return top


def _available() -> int:
    """Bytes of memory that are free or can be freed."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no MemAvailable in /proc/meminfo")


def _leftovers() -> tuple[int, int, int]:
    """Our descendants, this namespace's mounts, and temporary files."""
    mounts = len(Path("/proc/self/mounts").read_text().splitlines())
    files = sum(len(found) for _, _, found in os.walk(tempfile.gettempdir()))
    return len(_descendants()), mounts, files


def _descendants() -> list[int]:
    """Process ids of all that this one has started, and of what they have."""
    parents = {int(pid): _parent(pid) for pid in filter(str.isdigit, os.listdir("/proc"))}
    found, new = set[int](), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found - {os.getpid()})


def _parent(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _pages(pid: int) -> int:
    """Bytes of a process, shared pages by their share; 0 where this user may not know."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


async def _times(work: Callable[[int], Awaitable[object]], rounds: int) -> list[float]:
    seconds = []
    for turn in range(rounds):
        begun = time.perf_counter()
        await work(turn)
        seconds.append(time.perf_counter() - begun)
    return seconds


def _show(name: str, seconds: list[float], bar: str = "", most: float | None = None) -> None:
    ms = sorted(1000 * value for value in seconds)
    median, p95 = statistics.median(ms), ms[min(len(ms) - 1, int(0.95 * len(ms)))]
    holds = None if most is None else median <= most
    _line(name, f"{median:.3f} ms, p95 {p95:.3f}", bar, holds)


def _ratio(name: str, slow: list[float], fast: list[float], least: float) -> None:
    ratio = statistics.median(slow) / statistics.median(fast)
    _line(name, f"{ratio:.1f} x", f">= {least:g} x", ratio >= least)


def _line(name: str, figure: str, bar: str, holds: bool | None) -> None:
    mark = {None: "   ", True: "ok ", False: "BAR"}[holds]
    click.echo(f"{mark} {name:<40} {figure:<30} {bar}".rstrip())


if __name__ == "__main__":
    main()
