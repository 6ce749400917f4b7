"""``tadpole tasks``: make, validate, calibrate and show tasks, and what they cost."""

import asyncio
import json
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tadpole.cli.verb import Request, Verb, settings, tell
from tadpole.outcome import Tier
from tadpole.rundir import MARKER, cache_dir
from tadpole.task import Task


@click.group(name="tasks")
def command() -> None:
    """Make, validate, calibrate and show tasks."""


@command.command(cls=Verb, sections=["tasks", "author", "sandbox"])
@settings
def make(request: Request) -> int:
    """Make validated tasks from real repositories.

    \b
    tadpole tasks make --tasks.sources pypi:boltons,./my-project --tasks.count 20

    A source that cannot be read is told and left out where others can. Exit code 1 where one was
    left out, or where the sources gave fewer tasks.
    """
    from tadpole.pilot.unread import left_out

    with request.job(begins=True) as job:
        from tadpole.taskset import make as make_set  # seconds: after a refusal, not before it

        tasks = asyncio.run(make_set(job))
    asked = request.config.tasks.count
    if len(tasks) < asked:
        tell(f"tadpole: {_shortage(job.task_directory, len(tasks), asked)}", err=True)
    unread = left_out(job.task_directory, request.config.tasks.sources)
    for row in unread:
        tell(f"tadpole: {row}", err=True)
    request.result(
        [_row(task) for task in tasks],
        lambda: "\n".join([*(_line(task) for task in tasks), f"{len(tasks)} tasks"]),
    )
    return int(bool(unread) or len(tasks) < asked)


@command.command(
    cls=Verb,
    sections=["calibrate", "grading", "policy", "leaf", "warmup"],
    short={"budget": "calibrate.budget"},
)
@click.option("--budget", metavar="N", help="Most attempts in all (--calibrate.budget).")
@settings
def calibrate(request: Request) -> int:
    """Keep the tasks that the current policy sometimes solves.

    \b
    tadpole tasks calibrate --run runs/mine
    tadpole tasks calibrate --run runs/mine --budget 2000
    """
    with request.job(begins=bool(request.config.tasks.dir)) as job:
        from tadpole.stages import calibrate_tasks

        found = asyncio.run(calibrate_tasks(job))
    lines = [
        f"{place.name:<24} {place.part.value:<9} rung {place.rung}  {place.passes}/{place.valid}"
        for place in found.places
    ]
    request.result(
        found.model_dump(mode="json")["places"],
        lambda: "\n".join([*lines, f"{len(lines)} tasks kept"]),
    )
    return 0


@command.command()
@click.argument("source")
@click.option("--wheels", default="", metavar="DIR", help="Build from these wheels alone.")
@click.option("--json", "as_json", is_flag=True, help="Print the remarks as JSON.")
def doctor(source: str, wheels: str, as_json: bool) -> int:
    """Say whether a repository can become tasks, and what is wrong with it.

    SOURCE is pypi:NAME, a directory, or a git repository or its URL, perhaps with @COMMIT. Its
    environment is built and its tests are run, as tasks make would. Exit code 1 where it cannot.

    \b
    tadpole tasks doctor ./my-project
    """
    from tadpole.repos.examination import Remark, examine
    from tadpole.workshop import Workshop

    store = Workshop.open(cache_dir(), wheels=wheels).store
    found: list[Remark] = []

    async def look() -> None:
        async for remark in examine(store, source):
            found.append(remark)
            if not as_json:
                fix = f"  ({remark.fix})" if remark.fix else ""
                tell(f"{remark.mark} {remark.name:<11} {remark.detail}{fix}")

    asyncio.run(look())
    if as_json:
        click.echo(json.dumps([asdict(remark) for remark in found], indent=2))
    return int(not all(remark.ok for remark in found))


@command.command(cls=Verb, sections=["grading", "sandbox"])
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--tier", type=click.Choice(["1", "3"]), help="How to grade (--grading.tier).")
@settings
def validate(request: Request, directory: Path, tier: str | None) -> int:
    """Grade the gold patch (must pass) and a change that does nothing (must fail).

    DIRECTORY is one task or a set of them.

    \b
    tadpole tasks validate runs/mine/tasks --sandbox.engine container
    """
    from tadpole.evals.validity import validate_tasks
    from tadpole.workshop import Workshop

    tasks = _load(directory)
    asked = Tier(int(tier)) if tier else request.config.grading.tier
    grader = Workshop.open(cache_dir(), request.config.sandbox, asked).grader
    found = asyncio.run(validate_tasks(tasks, grader, request.progress))
    request.result(
        [{"name": v.task.name, "ok": v.ok, "reason": v.reason} for v in found],
        lambda: "\n".join(
            [
                *(f"{'ok ' if v.ok else 'BAD'} {v.task.name}  {v.reason}".rstrip() for v in found),
                f"{sum(v.ok for v in found)} of {len(found)} tasks are valid",
            ]
        ),
    )
    return int(not all(v.ok for v in found))


@command.command(name="import")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--into", type=click.Path(path_type=Path), required=True, help="Where tasks go.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def importing(directory: Path, into: Path, as_json: bool) -> int:
    """Import Harbor tasks: DIRECTORY is one, or holds several.

    Those of tadpole are checked and copied. Others must bring a Python repository with passing
    tests, pytest tests and a solution; they pass the same gates as every task. Exit code 1 where
    some could not be imported.
    """
    from tadpole.pilot.harbor.importing import import_tasks
    from tadpole.pilot.validate import Validator
    from tadpole.workshop import Workshop

    workshop = Workshop.open(cache_dir())
    validator = Validator(workshop.store, workshop.engine, workshop.grader)
    found = asyncio.run(import_tasks(directory, into, validator))
    Request.plain(as_json).result(
        [
            {"directory": one.directory, "task": one.task, "reason": one.reason and one.reason.name}
            for one in found
        ],
        lambda: "\n".join(
            [
                *(
                    f"{one.directory:<32} {one.task or f'not imported: {one.detail}'}"
                    for one in found
                ),
                f"{sum(bool(one.task) for one in found)} of {len(found)} tasks imported",
            ]
        ),
    )
    return int(any(one.reason for one in found))


@command.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--gold", is_flag=True, help="Show the solution too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def show(directory: Path, gold: bool, as_json: bool) -> int:
    """Show a task, or list a set of them."""
    tasks = _load(directory)
    request = Request.plain(as_json)
    if len(tasks) == 1:
        request.result(_row(tasks[0]), lambda: _page(tasks[0], gold))
    else:
        request.result([_row(t) for t in tasks], lambda: "\n".join(_line(t) for t in tasks))
    return 0


@command.command(name="yield")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--html", type=click.Path(path_type=Path), help="Write it as one HTML file too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def yields(directory: Path, html: Path | None, as_json: bool) -> int:
    """Show how many candidates became tasks, why the others did not, and what it cost.

    DIRECTORY is a run, or a directory that `tadpole tasks make` has filled.
    """
    from tadpole.pilot.harvest import harvest

    found = harvest(directory)
    if html is not None:
        from tadpole.report.yields import write_yield

        write_yield(found, str(directory), html)
        click.echo(f"tadpole: wrote {html}", err=True)
    Request.plain(as_json).result(found.body(), lambda: str(found))
    return 0


def _shortage(directory: Path, made: int, asked: int) -> str:
    """Why the sources gave no more."""
    from tadpole.pilot.journal import yield_of

    found = yield_of(directory)
    reasons = "; ".join(f"{count} {reason.value}" for reason, count in found.reasons.items())
    return (
        f"the sources give {made} of {asked} tasks: {found.proposed} possible bugs in code that "
        f"tests run{f' ({reasons})' if reasons else ''}; name more repositories with "
        "--tasks.sources"
    )


def _load(directory: Path) -> list[Task]:
    from tadpole.pilot.taskdir import load, load_set

    if (directory / MARKER).exists():  # a whole run
        directory /= "tasks"
    return [load(directory)] if (directory / "task.toml").exists() else load_set(directory)


def _row(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "id": task.id,
        "kind": task.kind.value,
        "source": f"{task.source.location} {task.source.version}",
        "operator": task.provenance.operator,
        "files": list(task.provenance.edited_files),
        "rung": task.rung,
        "rungs": [hint.rung for hint in task.hints],
        "fail_to_pass": len(task.fail_to_pass),
        "pass_to_pass": len(task.pass_to_pass),
        "kill_rate": task.measured.kill_rate,
        "rewritable": task.measured.rewritable,
        "statement": task.statement,
    }


def _line(task: Task) -> str:
    return (
        f"{task.name:<24} {task.kind.value:<10} {task.provenance.operator:<18} "
        f"{','.join(task.provenance.edited_files):<32} rung {task.rung}  "
        f"F2P {len(task.fail_to_pass)}  P2P {len(task.pass_to_pass)}"
    )


def _page(task: Task, gold: bool) -> str:
    parts = [_line(task), f"id {task.id}", ""]
    parts += [textwrap.indent(f"rung {h.rung}: {h.text}", "  ") + "\n" for h in task.hints]
    parts += ["fail to pass:", *(f"  {name}" for name in task.fail_to_pass)]
    parts += [f"pass to pass: {len(task.pass_to_pass)} tests"]
    measured = task.measured
    if measured.mutants:
        parts += [f"wrong repairs noticed: {measured.killed} of {measured.mutants}"]
    if measured.oracles is not None:
        parts += [f"rewritable: {len(measured.oracles)} of {measured.functions} test functions"]
    if gold:
        parts += ["", "gold:", *(f"  {change.path}" for change in task.gold)]
        starts = {change.path: change.content for change in task.start}
        parts += [_diff(c.path, starts.get(c.path), c.content) for c in task.gold]
    return "\n".join(parts)


def _diff(path: str, old: bytes | None, new: bytes | None) -> str:
    import difflib

    before, after = ((text or b"").decode(errors="replace").splitlines() for text in (old, new))
    return "\n".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm=""))
