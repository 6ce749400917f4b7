"""``tadpole solve``: an issue of one's own repository, worked on in isolation."""

import asyncio
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tadpole.cli.bench import as_begun, as_trained, here, say_event
from tadpole.cli.verb import Request, Verb, settings, tell

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

    place = here(repo, venv, request, earlier=_earlier(request, again, resume))
    if resume and place.earlier:
        run, job = place.earlier
    else:
        if again and place.earlier:  # as it was asked before, but for what is typed now
            asked_for, before = place.again(again), place.earlier[1]
            config = as_begun(before, request.flags)
            dirty, command = dirty or before.dirty, command or before.test_command
            if before.network and not allow:
                hosts = " ".join(f"--allow {host}" for host in before.network)
                request.progress.say(f"without network; the job before had {hosts}")
        else:
            asked_for, config = (_issue(text, issue), ""), as_trained(request)
        run, job = place.begun(
            asked_for,
            attempts=attempts,
            command=command,
            dirty=dirty,
            config=config,
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
        tell(_told(best, chosen))
    if len(rows) < job.attempts:
        request.progress.say(
            f"{job.attempts - len(rows)} attempts could not be made: tadpole solve --resume"
        )
        return 1
    if chosen is None or non_interactive or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return 1
    from tadpole.cli.review import in_terminal

    return in_terminal(place, Path(chosen))


def _earlier(request: Request, again: str | None, resume: bool) -> Callable[[Path], Path] | None:
    """Finds the job that goes on, or that is asked again; None where neither is wanted."""

    def unfinished(work: Path) -> Path:
        from tadpole.workbench.job import newest

        return newest(work, request.progress.say)

    def commented(work: Path) -> Path:
        from tadpole.workbench.passport import Ruling
        from tadpole.workbench.proposal import find

        return find(work, again, ruling=Ruling.ASK_AGAIN).parent.parent

    return unfinished if resume else commented if again else None


def _issue(text: str | None, file: str | None) -> str:
    from tadpole.errors import UsageError
    from tadpole.workbench.job import LONGEST_ISSUE, issue_of, issue_text

    if file is None:
        return issue_text(text or "")
    most = 4 * LONGEST_ISSUE + 4  # bytes: a longer one is refused without reading it to its end
    try:
        if file != "-":
            with Path(file).open("rb") as stream:
                return issue_of(stream.read(most))
        if sys.stdin is None:
            raise UsageError("standard input is closed: give the issue in a file")
        return issue_of(sys.stdin.buffer.read(most))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): give another file") from None


def _teller(request: Request) -> Callable[..., None]:
    if request.as_json:
        # In ASCII: what a model says may hold codes that a terminal obeys.
        return lambda event: click.echo(json.dumps(event.model_dump(mode="json")))
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
