"""A run directory with made-up rows: for the layout of the report, never for its figures."""

import math
import random

from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.outcome import GradeStatus, Outcome, StopReason
from tadpole.pilot.calibrate import Measured
from tadpole.pilot.journal import Cost, Step
from tadpole.pilot.split import Part, Place, Split, save_split
from tadpole.pilot.taskdir import save
from tadpole.pilot.verdict import DropReason
from tadpole.rl.metrics import UpdateRow
from tadpole.rundir import RunDir
from tadpole.task import FileChange, Hint, Provenance, Recipe, Source, Task, TaskKind
from tadpole.timing import StageRow
from tadpole.trace import Attempt, Compaction, Grade, Observation, ToolCall, Trace, Turn

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&amp;{{ 7*7 }}"


def make_task(number: int, library: str = "boltons", text: str = "fix it") -> Task:
    path = f"{library}/part{number % 5}.py"
    return Task(
        name=f"{library}-{number:04}",
        kind=TaskKind.BUG_FIX,
        source=Source("pypi", library, "1.0", "0" * 64, "BSD"),
        snapshot="s" * 16,
        runtime="r" * 16,
        recipe=Recipe(),
        start=(FileChange(path, b"x = 1\n"),),
        gold=(FileChange(path, b"x = 2\n"),),
        hidden=(FileChange(f"tests/test_{number}.py", b"def test(): pass\n"),),
        fail_to_pass=(f"tests/test_{number}.py::test",),
        pass_to_pass=(),
        hints=(Hint(0, text), Hint(3, f"{text} in {path}")),
        rung=3,
        provenance=Provenance("single_site", "comparison_flip", number, (path,), ("f",)),
    )


def make_attempt(
    task: Task, policy: str, sample: int, outcome: Outcome, trace: str = "", patch: str = ""
) -> Attempt:
    broken = outcome is Outcome.INFRASTRUCTURE
    stop = StopReason.MAX_TURNS if outcome is Outcome.LIMIT_HIT else StopReason.AGENT
    return Attempt(
        task=task.id,
        task_name=task.name,
        policy=policy,
        sample=sample,
        stop=StopReason.TOOL_ERROR if broken else stop,
        outcome=outcome,
        reward=None if broken else float(outcome is Outcome.RESOLVED),
        turns=2,
        generated_tokens=90,
        seconds=3.0,
        grade=None
        if broken
        else Grade(
            status=GradeStatus.GRADED,
            resolved=outcome is Outcome.RESOLVED,
            failing=() if outcome is Outcome.RESOLVED else task.fail_to_pass,
            reason="" if outcome is Outcome.RESOLVED else "1 of 1 hidden tests fail",
        ),
        trace=trace,
        patch=patch,
    )


def make_trace(task: Task, policy: str, text: str) -> Trace:
    call = ToolCall(
        name="Edit", arguments={"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}
    )
    return Trace(
        task=task.id,
        policy=policy,
        seed=0,
        system="You fix code.",
        statement=f"{task.statement} {text}",
        turns=(
            Turn(
                text=f'I will edit it. {text}\n<tool_call>\n{{"name": "Edit"}}\n</tool_call>',
                reasoning=text,
                calls=(call,),
                observations=(Observation(text=f"Edited a.py (1 replacement). {text}"),),
                generated_tokens=60,
            ),
            Turn(text=f"Done. {text}", generated_tokens=30),
        ),
        stop=StopReason.AGENT,
        compactions=(
            Compaction(
                turn=1, dropped=2, before=901, after=202, text=text, summary=f"My notes. {text}"
            ),
        ),
        recoveries=1,
        seconds=2.5,
    )


def note_step(run: RunDir, task: Task, key: str, reason: DropReason | None) -> None:
    """One candidate of task making, and what it cost."""
    making = RunDir(run.path / "tasks")
    step = Step(
        source=task.source.location,
        index=0,
        candidate=key,
        operator=task.provenance.operator,
        path="a.py",
        function="f",
        reason=reason,
        task="" if reason else task.name,
    )
    making.append("journal", step)
    making.append("costs", Cost(source=step.source, index=0, seconds=2.0, cpu_seconds=1.5))


def fill(run: RunDir, *, text: str = "", updates: int = 24, after: bool = True) -> None:
    """Rows of a whole run (or, without ``after``, of one that is still going)."""
    rng = random.Random(7)
    tasks = [make_task(n, "boltons" if n % 2 else "toolz", text or "fix it") for n in range(20)]
    held_out = tasks[:8]
    for task in tasks:
        save(task, run.path / "tasks")
    for number, task in enumerate(tasks):
        for reason in (DropReason.SURVIVED, DropReason.UNSTABLE)[: number % 3]:
            note_step(run, task, f"{number}{reason.name}", reason)
        note_step(run, task, f"{number}", None)
    places = [
        Place(
            name=task.name,
            id=task.id,
            rung=3,
            part=Part.HELD_OUT if task in held_out else Part.TRAIN,
            passes=rng.randint(1, 3),
            valid=4,
        )
        for task in tasks[:-2]
    ]
    for place in places:
        row = {"task": place.id, "name": place.name, "rung": 3, "kept": True}
        run.append("calibrated", Measured(**row, passes=place.passes, valid=place.valid))
    save_split(run, Split(places=tuple(places)))
    roles = {PolicyRole.RAW: 0.02, PolicyRole.BEFORE: 0.2, PolicyRole.AFTER: 0.6}
    for role, rate in roles.items():
        if role is PolicyRole.AFTER and not after:
            continue
        policy = f"{role.value}-fingerprint"
        note_policy(run, PolicyRow(role=role, fingerprint=policy, warmed_up=role != "raw"))
        for task in held_out:
            for sample in range(4):
                outcome = rng.choice([Outcome.WRONG_PATCH, Outcome.EMPTY_PATCH, Outcome.LIMIT_HIT])
                outcome = Outcome.RESOLVED if rng.random() < rate else outcome
                trace = patch = ""
                if sample == 0:
                    name = f"eval/{task.name}-{role.value}-{sample}"
                    trace = run.save_trace(make_trace(task, policy, text), name)
                    diff = f"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2 {text}\n"
                    patch = run.save_patch(diff.encode(), name)
                run.append("eval", make_attempt(task, policy, sample, outcome, trace, patch))
    for update in range(1, updates + 1):
        reward = 0.2 + 0.4 * (1 - math.exp(-update / 10)) + rng.gauss(0, 0.04)
        run.append(
            "updates",
            UpdateRow(
                update=update,
                episodes=64,
                mean_reward=reward,
                std_reward=0.4,
                groups=8,
                dropped_groups=rng.randint(0, 3),
                tokens=6000,
                dropped_share=0.01 * rng.random(),
                loss=-0.1,
                grad_norm=0.5,
                mean_abs_pq=0.001 * rng.random(),
                max_abs_pq=0.1,
                lag_max=1,
                entropy=1.2 - update * 0.02,
                mean_turns=2.0 + rng.random(),
                mean_generated=90 + 5 * rng.random(),
                stops={StopReason.AGENT: 60, StopReason.MAX_TURNS: 4},
                seconds_rollout=20,
                seconds_grade=8,
                seconds_update=6,
            ),
        )
    for name, seconds in [("make tasks", 120.0), ("calibrate", 90.0), ("train", 640.0)]:
        run.append("stages", StageRow(stage=name, seconds=seconds, finished=True))
