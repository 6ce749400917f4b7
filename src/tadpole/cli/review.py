"""``tadpole review``: a person looks at a proposal and decides."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tadpole.cli.bench import Here, here
from tadpole.cli.verb import Request

if TYPE_CHECKING:
    from tadpole.workbench.passport import Ruling
    from tadpole.workbench.proposal import Proposal


@click.command(name="review")
@click.argument("given", required=False, metavar="[ID]")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository. [.]")
@click.option("--web", is_flag=True, help="As a local page instead of in the terminal.")
@click.option("--show", "only_show", is_flag=True, help="Show it and ask nothing.")
@click.option("--revalidate", is_flag=True, help="Judge it anew on what is in the repository now.")
@click.option("--venv", type=click.Path(path_type=Path), help="The environment for that.")
@click.option("--json", "as_json", is_flag=True, help="Print the passport as JSON, ask nothing.")
def command(
    *,
    given: str | None,
    repo: Path,
    web: bool,
    only_show: bool,
    revalidate: bool,
    venv: Path | None,
    as_json: bool,
) -> int:
    """Show a proposal (default: the best of the newest job) and take a person's decision.

    Approve it, reject it with a reason, or ask again with a comment. Exit code 1 where you do
    not approve it; --show and --json, which ask nothing, end with 0.
    """
    from tadpole.workbench.proposal import find, load

    place = here(repo, venv, Request.plain(as_json))
    directory = find(place.work, given, ruling=None)
    if revalidate:
        directory = _revalidated(place, directory, venv)
    proposal = load(directory, place.key)
    if as_json:
        click.echo(json.dumps(json.loads(proposal.passport.model_dump_json()), indent=2))
        return 0
    if web:
        return _on_page(place, proposal)
    return in_terminal(place, directory, ask=not only_show)


def in_terminal(place: Here, directory: Path, *, ask: bool = True, applies: bool = False) -> int:
    """Show a proposal and ask; exit code 1 where it is not approved.

    ``applies``: the verb itself goes on to apply it, so it is not told as what to type next.
    """
    from rich.console import Console

    from tadpole.errors import UsageError
    from tadpole.workbench import review
    from tadpole.workbench.passport import Ruling
    from tadpole.workbench.proposal import load

    proposal = load(directory, place.key)
    review.show(Console(highlight=False), proposal)
    if not ask:
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            f"a review needs a person at a terminal: tadpole review {proposal.id}, or --web"
        )
    found = review.ask(Console(highlight=False), proposal, input)
    if found is None:
        click.echo(f"{proposal.id} is undecided; next: tadpole review {proposal.id}")
        return 1
    ruling, reason = found
    review.decide(proposal, place.key, ruling, review.reviewer_name(), reason)
    if not (applies and ruling is Ruling.APPROVED):
        _next(proposal, ruling)
    return 0 if ruling is Ruling.APPROVED else 1


def _on_page(place: Here, proposal: "Proposal") -> int:
    from tadpole.workbench.passport import Ruling
    from tadpole.workbench.review import decide, reviewer_name
    from tadpole.workbench.web import Page

    key, name = place.key, reviewer_name()
    page = Page(proposal, lambda ruling, reason: decide(proposal, key, ruling, name, reason))
    click.echo(page.address)
    sys.stdout.flush()
    ruling = page.serve()
    _next(proposal, ruling)
    return 0 if ruling is Ruling.APPROVED else 1


def anew(place: Here, directory: Path) -> Path | None:
    """Judge a proposal on what is there now, show it, and ask; where it is then, if approved."""
    made = _revalidated(place, directory, None)
    return made if in_terminal(place, made, applies=True) == 0 else None


def _revalidated(place: Here, directory: Path, venv: Path | None) -> Path:
    from tadpole.workbench.base import read_base
    from tadpole.workbench.environment import find
    from tadpole.workbench.job import read
    from tadpole.workbench.proposal import load
    from tadpole.workbench.solve import revalidate

    old = load(directory, place.key)
    _, job = read(old.job)
    base = read_base(place.git, dirty=job.dirty)
    lying_there = read_base(place.git, dirty=True)
    if any(lying_there.files.get(f.path) != base.files.get(f.path) for f in old.change.files):
        place.progress.say("touched files are not committed: judged as they lie there")
        base = lying_there
    bench = place.bench()
    if venv is None and job.venv:
        bench = replace(bench, environment=find(place.git.root, Path(job.venv)))
    place.progress.say(f"judging {old.id} on {base.commit[:12]}")
    made = asyncio.run(revalidate(bench, old, job, base))
    return made.directory


def _next(proposal: "Proposal", ruling: "Ruling") -> None:
    from tadpole.workbench.passport import Ruling

    verb = {
        Ruling.APPROVED: f"tadpole apply {proposal.id}",
        Ruling.REJECTED: "",
        Ruling.ASK_AGAIN: f"tadpole solve --again {proposal.id}",
    }[ruling]
    click.echo(
        f"{proposal.id} {ruling.value.replace('_', ' ')}" + (f"; next: {verb}" if verb else "")
    )
