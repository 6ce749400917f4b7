"""Proposals on disk: a directory each in the directory of the job that made them.

::

    WORK/JOB/                 a run directory: config.toml, attempts.jsonl, traces/
      proposals/ID/
        change.json           each touched file before and after
        patch.diff            the same for git apply
        passport.json         evidence and decision, signed; written last

ID names the content: the same change on the same base is the same proposal.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tadpole.errors import RunError, UsageError
from tadpole.rundir import RunDir, write_atomic
from tadpole.workbench.change import Change, parse_change
from tadpole.workbench.job import TABLE, AttemptRow, ranked
from tadpole.workbench.key import SigningKey
from tadpole.workbench.passport import FORMAT, Passport, Ruling, sha256

PASSPORT, CHANGE, PATCH = "passport.json", "change.json", "patch.diff"
_AGAIN = "make the proposal again with tadpole solve"


@dataclass(frozen=True)
class Proposal:
    """One proposal, read and checked."""

    directory: Path
    passport: Passport
    change: Change
    patch: bytes

    @property
    def id(self) -> str:
        """16 hex digits."""
        return self.passport.proposal

    @property
    def job(self) -> Path:
        """The directory of the job that made it."""
        return self.directory.parent.parent


def save(directory: Path, change: Change, patch: bytes, passport: Passport) -> None:
    """Write a proposal, its passport last: without one it is none."""
    write_atomic(directory / CHANGE, change.model_dump_json().encode())
    write_atomic(directory / PATCH, patch)
    save_passport(directory, passport)


def save_passport(directory: Path, passport: Passport) -> None:
    """Replace the passport of a proposal."""
    write_atomic(directory / PASSPORT, passport.model_dump_json(indent=1).encode() + b"\n")


def load(directory: Path, key: SigningKey) -> Proposal:
    """Read a proposal; every part of it is what its passport signs. Raises RunError, UsageError."""
    passport = _passport(directory)
    passport.check(key)
    parts = {}
    for name, expected in ((CHANGE, passport.change_sha256), (PATCH, passport.patch_sha256)):
        try:
            parts[name] = (directory / name).read_bytes()
        except OSError as error:
            raise RunError(
                f"{directory / name} cannot be read ({error.strerror}): {_AGAIN}"
            ) from None
        if sha256(parts[name]) != expected:
            raise UsageError(
                f"{directory / name} is not what its passport was signed for: {_AGAIN}"
            )
    change = parse_change(parts[CHANGE], str(directory / CHANGE))
    if change.patch() != parts[PATCH]:
        raise UsageError(f"{directory}: the patch is not the change: do not use this proposal")
    return Proposal(directory, passport, change, parts[PATCH])


def find(work: Path, given: str | None, *, ruling: Ruling | None) -> Path:
    """The directory of a proposal: a path, an id or its beginning, or the newest with ``ruling``.

    ``ruling`` None: not decided yet; of several attempts of a job the best. Raises UsageError.
    """
    if given and (Path(given) / PASSPORT).is_file():
        return Path(given).resolve()
    there = sorted(directories(work), key=lambda path: (path / PASSPORT).stat().st_mtime)
    if given:
        found = [path for path in there if path.name.startswith(given)]
        if not found:
            raise UsageError(f"there is no proposal {given!r} of this repository{_known(there)}")
        if len({path.name for path in found}) > 1:
            raise UsageError(f"{given!r} begins several proposals{_known(found)}")
        return found[-1]
    fitting = [path for path in reversed(there) if _ruled(path, ruling)]
    if fitting:
        return _best(fitting) if ruling is None else fitting[0]
    what = "that is approved" if ruling is Ruling.APPROVED else "that waits for review"
    verb = "tadpole review" if ruling is Ruling.APPROVED else 'tadpole solve "..."'
    raise UsageError(f"there is no proposal {what} of this repository{_known(there)}: {verb}")


def directories(work: Path) -> Iterator[Path]:
    """All proposals of a repository that are whole."""
    return (path.parent for path in work.glob(f"*/proposals/*/{PASSPORT}"))


def _ruled(directory: Path, ruling: Ruling | None) -> bool:
    """Whether a person's decision, None for none yet, is ``ruling``; False if unreadable."""
    try:
        decision = _passport(directory).decision
    except RunError:
        return False
    return (decision.ruling if decision else None) is ruling


def _best(waiting: list[Path]) -> Path:
    """Of the newest's job the best that waits. One that no attempt made was judged anew: itself."""
    newest = waiting[0]
    rows = RunDir.open(newest.parent.parent).rows(TABLE, AttemptRow)
    names = [row.proposal for row in ranked(rows) if row.proposal]
    if newest.name not in names:
        return newest
    beside = {path.name: path for path in waiting if path.parent == newest.parent}
    return next(beside[name] for name in names if name in beside)


def _known(there: list[Path]) -> str:
    names = list(dict.fromkeys(path.name for path in there))[-8:]
    return f" (there are {', '.join(names)})" if names else ""


def _passport(directory: Path) -> Passport:
    path = directory / PASSPORT
    try:
        body = json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): no proposal there") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}): {_AGAIN}") from None
    found = body.get("format") if isinstance(body, dict) else None
    if found != FORMAT:
        raise RunError(
            f"{path} has format {found!r}, this tadpole knows {FORMAT}: use the one it is of"
        )
    try:
        return Passport.model_validate_json(json.dumps(body))
    except ValueError as error:
        raise RunError(f"{path} is no passport ({_first(error)}): {_AGAIN}") from None


def _first(error: ValueError) -> str:
    return str(error).splitlines()[0]
