"""``tadpole doctor``: can this machine run it all?"""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tadpole.cli.verb import tell
from tadpole.errors import SandboxError
from tadpole.rundir import cache_dir
from tadpole.servers.finding import Finding
from tadpole.settings import SERVED

if TYPE_CHECKING:
    from tadpole.sandboxes.probe import ProbeReport

MEMORY = 6 << 30  # bytes: what the demo may need
DISK = 5 << 30


@click.command(name="doctor")
@click.option("--model", default="", metavar="openai:NAME", help="Look at this served model too.")
@click.option("--context", default=65_536, show_default=True, help="Tokens that are wished for.")
@click.option(
    "--seconds", default=60.0, show_default=True, help="For finding out how many are read."
)
@click.option("--image", default="", help="Image for the container engine (sandbox.image).")
@click.option("--verbose", is_flag=True, help="Tell every break-out that was tried.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    *, model: str, context: int, seconds: float, image: str, verbose: bool, as_json: bool
) -> int:
    """Check the sandbox engines (by trying to break out), the model, disk and memory.

    For every engine: what it holds, and which limits it can enforce here; hard (the kernel),
    watched (ended within tenths of a second), or none. Exit code 3 where something is
    missing that a run needs, above all an engine that holds.

    With --model openai:NAME, or where OPENAI_BASE_URL is set, the server there is tried out: by
    calling tools, giving results, and asking with ever longer prompts. What is wrong ends with
    what to change.

    \b
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 tadpole doctor --model openai:NAME
    """
    if model and not model.startswith(SERVED):
        raise click.UsageError(f"--model takes openai:NAME, a model behind a server, not {model}")
    base = os.environ.get("OPENAI_BASE_URL", "")
    found = examine(cache_dir(), image, verbose=verbose, served=bool(model or base))
    if model or base:
        found = chain(found, served(base, model.removeprefix(SERVED), context, seconds))
    findings = []
    for finding in found:
        findings.append(finding)
        if not as_json:
            fix = f"\n{'':<15}-> {finding.fix}" if finding.fix else ""
            tell(f"{finding.mark} {finding.name:<11} {finding.detail}{fix}")
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    return 0 if all(finding.ok for finding in findings) else 3


def served(base: str, model: str, context: int, seconds: float) -> Iterator[Finding]:
    """Look at the server at ``base``, one finding as soon as it is there. Raises ConfigError."""
    from tadpole.servers.examine import Wish
    from tadpole.servers.examine import examine as look
    from tadpole.servers.footprint import gpu_memory

    wish = Wish(
        base=base,
        model=model,
        context=context,
        seconds=seconds,
        key=os.environ.get("OPENAI_API_KEY", ""),
        memory=gpu_memory() or _memory(),
    )
    findings = look(wish)

    async def following() -> Finding | None:
        return await anext(findings, None)

    with asyncio.Runner() as runner:
        while (finding := runner.run(following())) is not None:
            yield finding


def examine(
    cache: Path, image: str = "", *, verbose: bool = False, served: bool = False
) -> Iterator[Finding]:
    """Look at this machine; the slow part is the sandbox engines, a second or two each.

    ``served``: the model is behind a server, so none is needed here.
    """
    from tadpole.models.embedded import DIRECTORY

    yield from _sandboxes(image, verbose)
    if not served:
        model = cache / "models" / DIRECTORY
        there = (model / "config.json").exists()
        told = f"{model}" if there else "embedded model: fetched when first used"
        yield Finding("model", True, told)
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    yield Finding("disk", free >= DISK, f"{_gib(free)} free for {cache}, {_gib(DISK)} wanted")
    memory = _memory()
    wanted = "" if served else f", {_gib(MEMORY)} wanted"
    yield Finding("memory", served or memory >= MEMORY, f"{_gib(memory)}{wanted}")
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
