"""Was every trained token sampled by the policy itself? Walks what a run left behind.

For each update: the episodes that it names are there and are, token for token, those that it was
trained on; each is an attempt of this run at a task of the training part, made by a version of
this very climb within the lag; and what is marked as generated is what the policy generated.
For each checkpoint: its files are those that were written, and its parents lead to the weights
that training began with, by what those said of themselves that were pruned.

It protects against mistakes: trajectories of another model or run that got in, files that were
mixed up or edited, a checkpoint put in another's place. It does not protect against somebody who
rewrites rows, traces and digests together. What the weights were before training began, and the
warm-up of a tiny model on self-made transcripts, are told but not examined.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tadpole.errors import RunError
from tadpole.evals.policies import PolicyRole, policies
from tadpole.models.location import weights_hash
from tadpole.outcome import OUTCOME_POLICY
from tadpole.pilot.split import Part, load_split
from tadpole.rl.checkpoint import CheckpointState, checkpoints, pruned_states, read_state
from tadpole.rl.metrics import ROLLOUTS, TABLE, UpdateRow
from tadpole.rl.samples import contexts
from tadpole.rundir import ROUNDS, RunDir
from tadpole.trace import Attempt, Tokens, Trace


class _Foreign(Exception):
    """The first violation, in one line."""


@dataclass(frozen=True)
class Provenance:
    """What the walk found. ``violation`` is empty where every trained token is the policy's."""

    updates: int
    episodes: int
    tokens: int  # trained on
    checkpoints: int
    base: str  # fingerprint of the weights that training began with
    warmed_up: bool
    violation: str = ""
    rounds: int = 1


def digest(traces: Iterable[Trace]) -> str:
    """A hash over the tokens of episodes: ids, log-probabilities, masks and versions."""
    found = hashlib.sha256()
    for trace in traces:
        for tokens in contexts(trace):
            columns = (tokens.ids, tokens.logprobs, tokens.loss_mask, tokens.versions)
            for values, kind in zip(columns, ("<i8", "<f8", "<i1", "<i4"), strict=True):
                found.update(np.asarray(values, dtype=kind).tobytes())
            found.update(b"|%d" % len(tokens.ids))
    return found.hexdigest()[:32]


def provenance(rundir: RunDir, max_lag: int) -> Provenance:
    """Walk the run, all its rounds. The sums are over them; the walk ends at the first violation.

    Raises RunError where it was never trained, or files are damaged or gone.
    """
    total = _round(rundir, max_lag)
    for number, later in enumerate(rundir.rounds()[1:], start=2):
        if total.violation or not later.table(TABLE).exists():  # or it has not begun to climb
            break
        found = _round(later, max_lag)
        violation = found.violation
        if found.base not in _weights(rundir.round(number - 1)):
            violation = f"it began with {found.base}, no checkpoint of the round before"
        total = replace(
            total,
            updates=total.updates + found.updates,
            episodes=total.episodes + found.episodes,
            tokens=total.tokens + found.tokens,
            checkpoints=total.checkpoints + found.checkpoints,
            violation=violation and f"round {number}: {violation}",
            rounds=number,
        )
    return total


def _weights(run: Path) -> set[str]:
    """The hashes of the weights that a climb has made."""
    root = run / "checkpoints"
    return {read_state(path).weights for path in checkpoints(root)} | {
        state.weights for state in pruned_states(root)
    }


def _round(rundir: RunDir, max_lag: int) -> Provenance:
    updates = {row.update: row for row in rundir.rows(TABLE, UpdateRow)}  # the last of each
    split, before = load_split(rundir), policies(rundir).get(PolicyRole.BEFORE)
    if not updates or split is None or before is None:
        raise RunError(f"{rundir.path} was not trained yet: run tadpole train --run {rundir.path}")
    names = {0: before.fingerprint} | {row.update: row.fingerprint for row in updates.values()}
    allowed = {place.id for place in split.places if place.part is Part.TRAIN}
    attempts = {row.trace: row for row in rundir.rows(ROLLOUTS, Attempt)}
    root = rundir.path / "checkpoints"
    states = [(weights_hash(path), read_state(path)) for path in checkpoints(root)]
    whole = len(states)
    after = policies(rundir).get(PolicyRole.AFTER)
    of_later = after is not None and after.path.startswith(f"{ROUNDS}/")
    if after and not of_later and all(state.update < after.update for _, state in states):
        raise RunError(
            f"{rundir.path}: the weights of update {after.update} are gone from checkpoints/, so "
            "nobody can tell where they came from: give a run that has them"
        )
    episodes = tokens = 0
    violation = ""
    try:
        for row in updates.values():
            traces = [rundir.load_trace(name) for name in row.traces]
            for name, trace in zip(row.traces, traces, strict=True):
                attempt = attempts.get(name)
                if attempt is None or not OUTCOME_POLICY[attempt.outcome].trust:
                    raise _Foreign(f"update {row.update}, {name}: no attempt of this run")
                versions = range(max(0, row.update - 1 - max_lag), row.update)
                begun_by = {names.get(version, "") for version in versions}
                _episode(f"update {row.update}, {name}", trace, attempt, begun_by, versions)
                if trace.task not in allowed:
                    raise _Foreign(f"update {row.update}, {name}: not a task to train on")
            if digest(traces) != row.digest:
                raise _Foreign(f"update {row.update} was trained on other tokens than its traces'")
            trained = sum(sum(c.loss_mask) for trace in traces for c in contexts(trace))
            if trained != row.tokens:
                raise _Foreign(f"update {row.update} had {row.tokens} tokens, not {trained}")
            episodes, tokens = episodes + len(traces), tokens + trained
        parent = before.fingerprint
        states += [(state.weights, state) for state in pruned_states(root)]
        for found, state in sorted(states, key=lambda one: one[1].update):
            parent = _checkpoint(f"update-{state.update:05d}", found, state, names, parent)
    except _Foreign as foreign:
        violation = str(foreign)
    return Provenance(len(updates), episodes, tokens, whole, names[0], before.warmed_up, violation)


def _episode(
    where: str, trace: Trace, attempt: Attempt, begun_by: set[str], versions: range
) -> None:
    if (trace.task, trace.policy) != (attempt.task, attempt.policy):
        raise _Foreign(f"{where}: of another task or policy than its row")
    if trace.policy not in begun_by:
        raise _Foreign(f"{where}: begun by {trace.policy}, no policy of this climb at that time")
    for tokens in contexts(trace):
        _tokens(where, tokens, versions)
    marked = sum(sum(tokens.loss_mask) for tokens in contexts(trace))
    if marked != trace.generated_tokens:
        raise _Foreign(
            f"{where}: {marked} tokens are marked as generated, {trace.generated_tokens} were"
        )


def _tokens(where: str, tokens: Tokens, versions: range) -> None:
    for logprob, marked, version in zip(
        tokens.logprobs, tokens.loss_mask, tokens.versions, strict=True
    ):
        if marked and version not in versions:
            raise _Foreign(f"{where}: a trained token is of version {version}")
        if not marked and version != -1:
            raise _Foreign(f"{where}: a token of version {version} is not marked as generated")
        if marked and not (math.isfinite(logprob) and logprob <= 0):
            raise _Foreign(f"{where}: a trained token has log-probability {logprob}")


def _checkpoint(
    name: str, found: str, state: CheckpointState, names: dict[int, str], parent: str
) -> str:
    """The hash of a checkpoint's weights, once it is known to come from ``parent``."""
    if state.weights != found:
        raise _Foreign(f"checkpoint {name}: its weights are not those that were written")
    if state.parent != parent:
        raise _Foreign(f"checkpoint {name}: made from {state.parent}, not from {parent}")
    if state.fingerprint != names.get(state.update):
        raise _Foreign(f"checkpoint {name}: no update of this run made it")
    return found


def told(found: Provenance) -> str:
    """The answer for a person: yes or no, and why."""
    if found.violation:
        return f"no: {found.violation}"
    warmed = ", warmed up on self-made transcripts" if found.warmed_up else ""
    rounds = f" of {found.rounds} rounds" if found.rounds > 1 else ""
    return (
        f"yes: all {found.tokens} tokens of {found.episodes} episodes in {found.updates} updates"
        f"{rounds} "
        f"were sampled by the policy that they trained, and {found.checkpoints} checkpoints lead "
        f"back to {found.base}{warmed}"
    )


def as_json(found: Provenance) -> str:
    """The same for a script."""
    return json.dumps({"own": not found.violation, **vars(found)}, indent=2)
