"""The inverse check of a composed bug: each part of it has to matter.

Protects against: parts that change nothing, or that another part covers up; then a repair of
only some of them would do. Does not protect against parts that only matter together.
"""

from collections.abc import Sequence

from tadpole.outcome import TestStatus
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.sources import Sources, sources_of
from tadpole.pilot.trial import Found, Trial, pristine_file
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.task import FileChange


async def shares(trial: Trial, found: Found) -> tuple[tuple[str, ...], ...]:
    """For each part, the failing tests that pass once it alone is taken back.

    The trial's box holds the whole candidate, and holds it again afterwards. Raises Dropped
    where taking a part back repairs nothing, or everything.
    """
    candidate, sources = trial.candidate, sources_of(trial.snapshot)
    repaired = []
    for number in range(len(candidate.parts)):
        others = [part for at, part in enumerate(candidate.parts) if at != number]
        await trial.write(_without(sources, candidate, others))
        report = await trial.run(found.failing)
        passing = tuple(i for i in found.failing if report.statuses.get(i) is TestStatus.PASSED)
        if not report.collected or not passing or len(passing) == len(found.failing):
            raise Dropped(DropReason.PART_IDLE)
        repaired.append(passing)
    await trial.write(candidate.changes)
    return tuple(repaired)


def _without(
    sources: Sources, whole: Candidate, others: Sequence[Candidate]
) -> tuple[FileChange, ...]:
    """The files of a composed bug with only these parts in them."""
    changed = sources.changes(site for part in others for site in part.sites) or ()
    known = {change.path for change in changed}
    pristine = (pristine_file(sources.snapshot, path) for path in whole.files if path not in known)
    return (*changed, *pristine)
