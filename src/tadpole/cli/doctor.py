"""``tadpole doctor``: can this machine run it all?"""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tadpole.errors import SandboxError
from tadpole.rundir import cache_dir

if TYPE_CHECKING:
    from tadpole.sandboxes.probe import ProbeReport

MEMORY = 6 << 30  # bytes: what the demo may need
DISK = 5 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``more`` is for machines."""

    name: str
    ok: bool
    detail: str
    more: dict[str, Any] = field(default_factory=dict)


@click.command(name="doctor")
@click.option("--image", default="", help="Image for the container engine (sandbox.image).")
@click.option("--verbose", is_flag=True, help="Tell every break-out that was tried.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(image: str, verbose: bool, as_json: bool) -> int:
    """Check the sandbox engines (by trying to break out), the model, disk and memory.

    For every engine: what it holds, and which limits it can enforce here; hard (the kernel),
    watched (ended within tenths of a second), or none. Exit code 3 where something is
    missing that a run needs, above all an engine that holds.
    """
    findings = list(examine(cache_dir(), image, verbose=verbose))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = "ok " if finding.ok else "BAD"
            click.echo(f"{mark} {finding.name:<10} {finding.detail}")
    return 0 if all(finding.ok for finding in findings) else 3


def examine(cache: Path, image: str = "", *, verbose: bool = False) -> Iterator[Finding]:
    """Look at everything; the slow part is the sandbox engines, a second or two each."""
    from tadpole.models.embedded import DIRECTORY

    yield from _sandboxes(image, verbose)
    model = cache / "models" / DIRECTORY
    there = (model / "config.json").exists()
    yield Finding("model", True, f"{model}" if there else "embedded model: fetched when first used")
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    yield Finding("disk", free >= DISK, f"{_gib(free)} free for {cache}, {_gib(DISK)} wanted")
    memory = _memory()
    yield Finding("memory", memory >= MEMORY, f"{_gib(memory)}, {_gib(MEMORY)} wanted")
    yield Finding("cpus", True, f"{len(os.sched_getaffinity(0))} usable")


def _sandboxes(image: str, verbose: bool) -> Iterator[Finding]:
    """Every engine of the ladder, then which one a run would take.

    An engine that is not there is no fault as long as another one holds; one through which a
    break-out got is.
    """
    from tadpole.sandboxes.ladder import LADDER, make
    from tadpole.sandboxes.probe import probe

    holding = []
    for kind in LADDER:
        try:
            report = asyncio.run(probe(make(kind, image)))
        except SandboxError as error:
            yield Finding(kind.value, True, f"not here: {error}", {"available": False})
            continue
        if report.held:
            holding.append(kind.value)
        yield Finding(kind.value, report.held, _summary(report), _details(report))
        if verbose:
            yield from (Finding(kind.value, True, line) for line in report.lines())
    chosen = f"{holding[0]} (sandbox.engine = auto)" if holding else "no engine holds here"
    yield Finding("sandbox", bool(holding), chosen, {"engines": holding})


def _summary(report: "ProbeReport") -> str:
    if not report.held:
        return f"broken: {'; '.join(report.broken)}"
    tried = f"{len(report.canaries)} break-outs tried, all held; {report.made_of}"
    return "; ".join([tried, _limits(report), *report.traits.notes])


def _limits(report: "ProbeReport") -> str:
    """``hard: processes, disk; watched: memory``."""
    names: dict[str, Sequence[str]] = {}
    for name, bound in report.bounds.items():
        names[bound.value] = [*names.get(bound.value, ()), name]
    none = names.pop("none", [])
    parts = [f"{bound}: {', '.join(of)}" for bound, of in names.items()]
    return "; ".join([*parts, *(f"cannot enforce {name} here" for name in none)])


def _details(report: "ProbeReport") -> dict[str, Any]:
    return {
        "available": True,
        "made_of": report.made_of,
        "traits": asdict(report.traits),
        "bounds": {name: bound.value for name, bound in report.bounds.items()},
        "canaries": [asdict(canary) for canary in report.canaries],
    }


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
