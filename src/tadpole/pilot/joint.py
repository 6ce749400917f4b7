"""Candidates that share one run of the whole suite.

A whole run costs more than all else that is done for a candidate. So some of them, in different
functions and with no failing test in common, are put into the tree together. Each is confirmed
where exactly the tests fail that fail by one of them, and all that anyone keeps green passes; else
the group is halved and run again, down to one candidate a run.

Guards against: bugs that disturb each other (the halves are run again). Does not guard against a
test that one candidate alone breaks in a whole run only, and that another one happens to repair:
the grader, which sees each candidate alone, finds that of the tests that decide.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tadpole.outcome import TestStatus
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.choice import Choice
from tadpole.pilot.sources import Sources, sources_of, spliced
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.testrun import TestReport
from tadpole.task import FileChange


@dataclass(frozen=True)
class Group:
    """Candidates in one tree."""

    choices: tuple[Choice, ...]
    changes: tuple[FileChange, ...]

    def seen_by(self, one: Choice, report: TestReport) -> TestReport:
        """A report as it would be without the others: what fails by them alone has passed."""
        others = {i for other in self.choices if other is not one for i in other.failing}
        away = others - set(one.failing)
        statuses = {
            i: TestStatus.PASSED if i in away and status is not TestStatus.MISSING else status
            for i, status in report.statuses.items()
        }
        return replace(report, statuses=statuses)

    def agrees(self, report: TestReport) -> bool:
        """Whether a run confirms every one of them."""
        expected = {i for one in self.choices for i in one.failing}
        return expected.isdisjoint(report.passed) and all(
            one.agrees(self.seen_by(one, report)) for one in self.choices
        )

    def halves(self, snapshot: Snapshot) -> "list[Group]":
        """The same candidates in smaller groups."""
        return groups(snapshot, self.choices, (len(self.choices) + 1) // 2)


def groups(snapshot: Snapshot, choices: Iterable[Choice], most: int) -> list[Group]:
    """Each candidate in one group of at most so many, those with few failing tests together."""
    sources = sources_of(snapshot)
    found: list[Group] = []
    for one in sorted(choices, key=lambda one: (len(one.failing), one.candidate.key)):
        for number, group in enumerate(found):
            if len(group.choices) < most and all(_apart(one, other) for other in group.choices):
                chosen = (*group.choices, one)
                changes = _merged(sources, [other.candidate for other in chosen])
                if changes is not None:
                    found[number] = Group(chosen, changes)
                    break
        else:
            found.append(Group((one,), one.candidate.changes))
    return found


def _apart(one: Choice, other: Choice) -> bool:
    places = _places(one.candidate) & _places(other.candidate)
    return not places and not set(one.failing) & set(other.failing)


def _places(candidate: Candidate) -> frozenset[tuple[str, str]]:
    return frozenset((path, name) for path in candidate.files for name in candidate.functions)


def _merged(sources: Sources, candidates: Sequence[Candidate]) -> tuple[FileChange, ...] | None:
    """All their changes in one tree; None where they do not go together."""
    by_path: dict[str, list[Candidate]] = {}
    for one in candidates:
        for path in one.files:
            by_path.setdefault(path, []).append(one)
    found = []
    for path, those in sorted(by_path.items()):
        changes = [change for one in those for change in one.changes if change.path == path]
        text = _together(sources, path, those) if len(those) > 1 else changes[0].content
        if text is None and len(those) > 1:
            return None
        found.append(replace(changes[0], content=text))
    return tuple(found)


def _together(sources: Sources, path: str, candidates: Sequence[Candidate]) -> bytes | None:
    """A file with the edits of all of them; None where edits overlap, or do not say it all."""
    code = sources.code(path)
    sites = [[site for site in one.sites if site.path == path] for one in candidates]
    for one, mine in zip(candidates, sites, strict=True):
        alone = None if code is None else spliced(code.text, mine)
        content = next(change.content for change in one.changes if change.path == path)
        if code is None or alone is None or code.encode(alone) != content:
            return None
    assert code is not None
    text = spliced(code.text, [site for mine in sites for site in mine])
    return None if text is None else code.encode(text)
