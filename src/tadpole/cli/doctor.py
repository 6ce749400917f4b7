"""``tadpole doctor``: can this machine run it all?"""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from tadpole.errors import SandboxError
from tadpole.rundir import cache_dir

MEMORY = 6 << 30  # bytes: what the demo may need
DISK = 5 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> int:
    """Check the sandbox (by trying to break out), the embedded model, disk and memory.

    Exit code 3 where the sandbox does not hold: then nothing will run.
    """
    findings = list(examine(cache_dir()))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(f"{'ok ' if finding.ok else 'BAD'} {finding.name:<10} {finding.detail}")
    return 0 if all(finding.ok for finding in findings) else 3


def examine(cache: Path) -> Iterator[Finding]:
    """Look at everything; the slow part is the sandbox, about a second."""
    from tadpole.models.embedded import DIRECTORY
    from tadpole.sandboxes.probe import probe

    try:
        report = asyncio.run(probe())
        broken = [canary.name for canary in report.canaries if not canary.held]
        held = f"{len(report.canaries)} break-outs tried, all held; bubblewrap {report.bubblewrap}"
        yield Finding("sandbox", report.held, f"broken: {', '.join(broken)}" if broken else held)
        for note in report.notes:
            yield Finding("sandbox", True, note)
    except SandboxError as error:
        yield Finding("sandbox", False, str(error))
    model = cache / "models" / DIRECTORY
    there = (model / "config.json").exists()
    yield Finding("model", True, f"{model}" if there else "embedded model: fetched when first used")
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    yield Finding("disk", free >= DISK, f"{_gib(free)} free for {cache}, {_gib(DISK)} wanted")
    memory = _memory()
    yield Finding("memory", memory >= MEMORY, f"{_gib(memory)}, {_gib(MEMORY)} wanted")
    yield Finding("cpus", True, f"{len(os.sched_getaffinity(0))} usable")


def _memory() -> int:
    """Bytes that this process may use: of the machine, or of its control group."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() else whole


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
