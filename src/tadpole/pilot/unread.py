"""Sources that cannot become snapshots: told, and left out so that the others give their share.

What depends on a source is settled once a candidate of it may have been written down
(:class:`tadpole.pilot.journal.Making`): such a source is never left out, for without it the same
command would come to other tasks. The table ``unread`` beside the tasks says which were left out,
and why; a source that can be read later joins the others then.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tadpole.errors import NetworkError, SourceError
from tadpole.pilot.journal import SETTINGS, Making
from tadpole.repos.address import shown
from tadpole.rundir import RunDir
from tadpole.trace import Record

if TYPE_CHECKING:  # whoever tells the yield needs none
    from tadpole.repos.store import Store

TABLE = "unread"


class Unread(Record):
    """A source that could not be read, and why, in words that say what to do."""

    format: Literal[1] = 1
    source: str
    reason: str

    def __str__(self) -> str:
        return f"left out {self.source}: {self.reason}"


async def readable(
    sources: Sequence[str], store: "Store", out: Path, say: Callable[[str], object]
) -> list[str]:
    """Those of ``sources`` that become snapshots; ``say`` and the table get the others.

    ``out`` is the directory of the tasks. Raises SourceError or NetworkError where none can be
    read, or one that ``out`` was begun with; SandboxError.
    """
    wanted = list(dict.fromkeys(sources))
    if len(wanted) == 1:
        return wanted  # who reads it says what is wrong
    run = RunDir(out)
    begun = {row.source for row in run.rows(SETTINGS, Making)}
    found: list[str] = []
    failed: dict[str, SourceError | NetworkError] = {}
    for asked in wanted:
        source = shown(asked)
        try:
            await store.snapshot(asked)
            found.append(asked)
        except (SourceError, NetworkError) as error:
            if source in begun:
                raise type(error)(
                    f"{out} was begun with {source}, which cannot be read now: {error}"
                ) from error
            failed[source] = error
    if not found:
        source, first = next(iter(failed.items()))
        raise type(first)(f"none of {len(wanted)} sources can be read; {source}: {first}")
    known = set(run.rows(TABLE, Unread))
    for source, cause in failed.items():
        row = Unread(source=source, reason=" ".join(str(cause).split()))
        say(str(row))
        if row not in known:
            out.mkdir(parents=True, exist_ok=True)
            run.append(TABLE, row)
    return found


def left_out(out: Path, among: Collection[str] | None = None) -> list[Unread]:
    """The sources, of ``among`` or any, that gave nothing as they could not be read.

    Each once, with its last reason.
    """
    run = RunDir(out)
    rows = {row.source: row for row in run.rows(TABLE, Unread)}
    begun = {row.source for row in run.rows(SETTINGS, Making)}
    wanted = rows.keys() if among is None else set(map(shown, among))
    return [row for source, row in rows.items() if source in wanted and source not in begun]
