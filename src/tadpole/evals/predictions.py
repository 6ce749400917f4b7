"""An evaluation for other programs: patches as SWE-bench harnesses read them, and trajectories."""

from collections.abc import Iterator
from typing import Any

from tadpole.errors import RunError
from tadpole.evals.atif import trajectory
from tadpole.evals.evaluate import TABLE
from tadpole.evals.policies import PolicyRole, policies
from tadpole.evals.scoreboard import settled
from tadpole.outcome import OUTCOME_POLICY
from tadpole.rundir import RunDir
from tadpole.trace import Attempt


def predictions(rundir: RunDir, role: PolicyRole, sample: int = 0) -> list[dict[str, str]]:
    """One row for each task: ``model_name_or_path``, ``instance_id``, ``model_patch``.

    Attempts that infrastructure broke are left out, those without a change have an empty patch.
    Bytes that are no UTF-8 become lone surrogates, which JSON escapes: decode and encode with
    ``surrogateescape`` to get the patch back byte for byte. Raises RunError where the policy or
    the attempt was not evaluated.
    """
    return [
        {
            "model_name_or_path": f"tadpole-{role.value}-{row.policy[:12]}",
            "instance_id": row.task_name,
            "model_patch": _text(rundir.load_patch(row.patch)) if row.patch else "",
        }
        for row in attempts(rundir, role, sample)
    ]


def trajectories(rundir: RunDir, role: PolicyRole, sample: int = 0) -> Iterator[dict[str, Any]]:
    """The trajectory of one attempt at each task. Raises RunError where there is none."""
    for row in attempts(rundir, role, sample):
        if not row.trace:
            raise RunError(f"{rundir.path} holds no trace of {row.task_name}")
        trace = rundir.load_trace(row.trace)
        extra = {"task_name": row.task_name, "outcome": row.outcome.value, "reward": row.reward}
        yield trajectory(trace, session=f"{row.task_name}-{row.sample}", extra=extra)


def attempts(rundir: RunDir, role: PolicyRole, sample: int) -> list[Attempt]:
    """One trusted attempt at each task, by name. Raises RunError where there is none."""
    found = policies(rundir).get(role)
    if found is None:
        raise RunError(f"{rundir.path} has no policy {role.value!r}: evaluate it first")
    rows = [
        row
        for row in settled(rundir.rows(TABLE, Attempt))
        if (row.policy, row.sample) == (found.fingerprint, sample)
        and OUTCOME_POLICY[row.outcome].trust
    ]
    if not rows:
        raise RunError(
            f"{rundir.path} holds no attempt {sample} of policy {role.value!r}: run tadpole eval "
            f"run --policy {role.value} --run {rundir.path}, or name another --sample"
        )
    return sorted(rows, key=lambda row: row.task_name)


def _text(patch: bytes) -> str:
    return patch.decode("utf-8", "surrogateescape")  # never stripped: a patch ends as it ends
