"""``tadpole apply``: an approved proposal into one's own repository."""

import json
import sys
import time
from pathlib import Path

import click

from tadpole.cli.bench import here
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
    the repository has moved since: at a terminal it is then judged anew if you want. Nothing is
    ever pushed.
    """
    from tadpole.visible import visible
    from tadpole.workbench.apply import Moved, to_branch, to_work_tree
    from tadpole.workbench.passport import Ruling
    from tadpole.workbench.proposal import find, load

    request = Request.plain(as_json)
    place = here(repo, None, request)
    found = find(place.work, given, ruling=Ruling.APPROVED)
    proposal = load(found, place.key)
    try:
        if branch is None:
            paths = to_work_tree(proposal, place.git)
        else:
            commit = to_branch(proposal, place.git, branch, f"{int(time.time())} +0000")
    except Moved as moved:
        if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise
        place.progress.say(f"tadpole: {moved}")
        if not click.confirm("Judge it anew on what is there now, and review it?"):
            return moved.exit_code
        return anew(place, found)
    if branch is None:
        listed = "\n".join(f"wrote {visible(path)}" for path in paths)
        request.result({"proposal": proposal.id, "paths": paths}, lambda: listed)
        return 0
    request.result(
        json.loads(json.dumps({"proposal": proposal.id, "branch": branch, "commit": commit})),
        lambda: f"{commit[:12]} on {branch}; next: git log -p {branch}",
    )
    return 0
