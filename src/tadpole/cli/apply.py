"""``tadpole apply``: an approved proposal into one's own repository."""

import sys
import time
from pathlib import Path

import click

from tadpole.cli.bench import Here, here
from tadpole.cli.review import anew
from tadpole.cli.verb import Request


@click.command(name="apply")
@click.argument("given", required=False, metavar="[ID]")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository. [.]")
@click.option("--branch", metavar="NAME", help="One commit on a new branch instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(given: str | None, repo: Path, branch: str | None, as_json: bool) -> int:
    """Write a proposal (default: the newest that is approved) into the work tree, uncommitted.

    Refused without a passport in which a person approved it, where anything blocks, and where
    the repository has moved since: at a terminal it is then judged anew if you want, and applied
    if you approve that. Nothing is ever pushed. Exit code 1 where you do not approve it.
    """
    from tadpole.workbench.apply import Moved
    from tadpole.workbench.passport import Ruling
    from tadpole.workbench.proposal import find

    request = Request.plain(as_json)
    place = here(repo, None, request)
    found = find(place.work, given, ruling=Ruling.APPROVED)
    try:
        _applied(place, found, branch, request)
    except Moved as moved:
        if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise
        place.progress.say(f"tadpole: {moved}")
        if not click.confirm("Judge it anew on what is there now, and review it?"):
            return moved.exit_code
        made = anew(place, found)
        if made is None:
            return 1
        _applied(place, made, branch, request)
    return 0


def _applied(place: Here, directory: Path, branch: str | None, request: Request) -> None:
    """Apply a proposal and say so. Raises UsageError, Moved where the repository moved on."""
    from tadpole.visible import visible
    from tadpole.workbench.apply import to_branch, to_work_tree
    from tadpole.workbench.proposal import load

    proposal = load(directory, place.key)
    if branch is None:
        paths = to_work_tree(proposal, place.git)
        listed = "\n".join(f"wrote {visible(path)}" for path in paths)
        request.result({"proposal": proposal.id, "paths": paths}, lambda: listed)
        return
    commit = to_branch(proposal, place.git, branch, f"{int(time.time())} +0000")
    request.result(
        {"proposal": proposal.id, "branch": branch, "commit": commit},
        lambda: f"{commit[:12]} on {branch}; next: git log -p {branch}",
    )
