"""``tadpole solve``: an issue of one's own repository, worked on in isolation."""

import asyncio
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tadpole.cli.bench import here, say_event
from tadpole.cli.verb import Request, Verb, settings

if TYPE_CHECKING:
    from tadpole.workbench.job import AttemptRow


# Of all settings those that mean something where nothing is trained or graded.
_SETTINGS = (
    *("policy.model", "policy.device", "policy.dtype", "policy.threads", "leaf"),
    *("eval.temperature", "eval.top_p", "eval.top_k", "run.concurrency", "run.seed", "sandbox"),
)


@click.command(name="solve", cls=Verb, sections=_SETTINGS)
@click.argument("text", required=False, metavar="[ISSUE]")
@click.option("--issue", metavar="FILE", help="Read the issue from a file; - for standard input.")
@click.option("-n", "attempts", type=click.IntRange(1, 64), default=1, help="Attempts. [1]")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository. [.]")
@click.option("--venv", type=click.Path(path_type=Path), help="Its virtual environment.")
@click.option("--test", "command", default="", help="Its test command, instead of the policy's.")
@click.option("--dirty", is_flag=True, help="Start from the work tree, not from HEAD.")
@click.option("--allow", multiple=True, metavar="HOST", help="Let it reach HOST: [nothing].")
@click.option("--again", metavar="ID", help="A new attempt with the comment of a review.")
@click.option("--resume", is_flag=True, help="Go on with the newest job that is not finished.")
@click.option("--non-interactive", is_flag=True, help="Stop before the review, with exit code 1.")
@functools.partial(settings, of_run=False)
def command(
    request: Request,
    *,
    text: str | None,
    issue: str | None,
    attempts: int,
    repo: Path,
    venv: Path | None,
    command: str,
    dirty: bool,
    allow: tuple[str, ...],
    again: str | None,
    resume: bool,
    non_interactive: bool,
) -> int:
    """Work on ISSUE in an isolated copy of the repository, and judge what comes of it.

    Nothing is written in the repository. What comes of it is a proposal: a patch, its evidence
    and its trace. A person reviews it, and only then tadpole apply writes it.

    \b
    tadpole solve "parse() fails on an empty line" --model DIR
    tadpole solve --issue issue.md -n 4
    tadpole solve "support Python 3.13" --allow pypi.org --allow files.pythonhosted.org
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 tadpole solve --issue - --model openai:NAME
    """
    asked = [text is not None, issue is not None, again is not None, resume]
    if sum(asked) != 1:
        raise click.UsageError('give one of "ISSUE", --issue FILE, --again ID or --resume')
    if resume and allow:
        raise click.UsageError("a resumed job keeps its own --allow: leave it out")
    from tadpole.workbench.job import ranked

    place = here(repo, venv, request, resuming=resume)
    if resume:
        run, job = place.resumed()
    else:
        asked_for = place.again(again) if again else (_issue(text, issue), "")
        run, job = place.begun(
            asked_for,
            attempts=attempts,
            command=command,
            dirty=dirty,
            config=request.config,
            network=allow,
        )
    with run.lock():
        try:
            rows = asyncio.run(place.solve(run, job, request, _teller(request)))
        except KeyboardInterrupt:
            request.progress.say("what is done is kept: tadpole solve --resume")
            raise
    best = ranked(rows)
    found = [row for row in best if row.proposal]
    chosen = str(run.path / "proposals" / found[0].proposal) if found else None
    if request.as_json:  # lines: the events came before
        body = {"job": run.path.name, "attempts": [row.model_dump(mode="json") for row in best]}
        click.echo(json.dumps(body | {"proposal": chosen}))
    else:
        click.echo(_told(best, chosen))
    if len(rows) < job.attempts:
        request.progress.say(
            f"{job.attempts - len(rows)} attempts could not be made: tadpole solve --resume"
        )
        return 1
    if chosen is None or non_interactive or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return 1
    from tadpole.cli.review import in_terminal

    return in_terminal(place, Path(chosen))


def _issue(text: str | None, file: str | None) -> str:
    from tadpole.errors import UsageError
    from tadpole.workbench.job import issue_text

    if file is None:
        return issue_text(text or "")
    if file == "-":
        return issue_text(sys.stdin.read())
    try:
        return issue_text(Path(file).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): give another file") from None


def _teller(request: Request) -> Callable[..., None]:
    if request.as_json:
        return lambda event: click.echo(event.model_dump_json())
    return lambda event: say_event(request.progress, event)


def _told(rows: "list[AttemptRow]", chosen: str | None) -> str:
    lines = []
    for row in rows:
        verdict = row.verdict.value if row.verdict else "no change"
        name = row.proposal or "-"
        lines.append(
            f"attempt {row.number}: {name}  {verdict}  {row.turns} turns, {row.stop.value}"
        )
    if chosen is None:
        lines.append("no proposal: nothing was changed")
    else:
        lines.append(f"proposal: {chosen}")
        lines.append(f"next: tadpole review {Path(chosen).name}")
    return "\n".join(lines)
