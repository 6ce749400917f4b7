"""A job from issue to proposals: isolated copy, attempts, gate, passports.

Guards against: anything in the person's repository being changed (it is read once, through
plumbing), and work that an interruption or a broken box leaves half done: an attempt counts once
its row is written, and every box and scratch tree is gone when this returns or raises.
"""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tadpole.errors import ConfigError, ModelError, SandboxDied, UsageError
from tadpole.grading.patch import worth_telling
from tadpole.outcome import STOP_POLICY, StopReason
from tadpole.protocols import SandboxEngine, SandboxSpec
from tadpole.rundir import RunDir
from tadpole.together import together
from tadpole.workbench import job as jobs
from tadpole.workbench import proposal
from tadpole.workbench.allowlist import Allowed
from tadpole.workbench.base import Base, write_tree
from tadpole.workbench.carry import carried
from tadpole.workbench.change import Change, change_of
from tadpole.workbench.environment import Environment, recipe_of
from tadpole.workbench.gate import Gate
from tadpole.workbench.job import TABLE, AttemptRow, Job, ranked
from tadpole.workbench.key import SigningKey
from tadpole.workbench.passport import (
    BaseFacts,
    CommandRun,
    Passport,
    SandboxFacts,
    commands_of,
    sha256,
)
from tadpole.workbench.policy import FILE, GateRules, read_policy
from tadpole.workbench.solver import Ask, Attempted, Event, Solver


@dataclass(frozen=True)
class Bench:
    """What a job works with."""

    engine: SandboxEngine
    environment: Environment
    key: SigningKey
    scratch: Path  # for trees, which are removed again
    tell: Callable[[Event], None] = lambda event: None
    say: Callable[[str], None] = lambda line: None


async def solve(
    bench: Bench,
    run: RunDir,
    job: Job,
    base: Base,
    solver: Solver,
    *,
    notes: bool = True,
    at_once: int = 4,
) -> list[AttemptRow]:
    """Make the attempts that the job still owes; returns the rows of all, best proposal first.

    ``notes``: whether the model is also told what AGENTS.md says. ``at_once``: attempts at a
    time. What infrastructure broke is
    owed again; where that is all there is, ModelError or SandboxDied is raised. Raises
    SandboxUnavailable, UsageError where the base is another by now.
    """
    if base.digest != job.base:
        raise UsageError(
            "the work tree has changed since this job began: start a new one, or commit first"
        )
    done = {row.number for row in run.rows(TABLE, AttemptRow)}
    bench.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="solve-", dir=bench.scratch) as scratch:
        tree = Path(scratch) / "tree"
        await write_tree(base, tree)
        gate = Gate(bench.engine, bench.environment, base, tree, rules_of(base, job.test_command))
        work = _Work(bench, run, job, base, solver, gate, notes)
        owed = iter([n for n in range(job.attempts) if n not in done])

        async def some() -> None:
            for number in owed:
                await work.attempt(number)

        await together(some() for _ in range(min(at_once, job.attempts)))
    rows = ranked(run.rows(TABLE, AttemptRow))
    if not rows and work.broken:
        stop, why = work.broken[0]
        kind = SandboxDied if stop is StopReason.TOOL_ERROR else ModelError
        raise kind(f"no attempt could be made: {why}; then tadpole solve --resume")
    for stop, why in work.broken:
        bench.say(f"an attempt could not be made: {stop.value}: {why}")
    return rows


def rules_of(base: Base, command: str) -> GateRules:
    """The policy of a base, with the test command of this job where one was given.

    Raises ConfigError.
    """
    if FILE in base.links:  # never followed, and no rule of it may be lost in silence
        raise ConfigError(f"{FILE} is a symbolic link: make it a file of its own and commit")
    rules = read_policy(base.files)
    if not command:
        return rules
    return rules.model_copy(update={"tests": rules.tests.model_copy(update={"command": command})})


async def revalidate(
    bench: Bench, old: proposal.Proposal, job: Job, base: Base
) -> proposal.Proposal:
    """The same change judged on a base that moved: a new proposal, which nobody has approved.

    Touched files that moved on are merged. Raises UsageError where they cannot be.
    """
    change = carried(old.change, base)
    patch = change.patch()
    bench.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gate-", dir=bench.scratch) as scratch:
        tree = Path(scratch) / "tree"
        await write_tree(base, tree)
        gate = Gate(bench.engine, bench.environment, base, tree, rules_of(base, job.test_command))
        report = await gate.judge(change, old.passport.statement)
    passport = old.passport.model_copy(
        update={
            "proposal": change.id,
            "made_at": jobs.now(),
            "base": _facts(base),
            "change_sha256": sha256(change.model_dump_json().encode()),
            "patch_sha256": sha256(patch),
            "rules": gate.rules,
            "gate": report,
            "decision": None,
        }
    )
    place = old.job / "proposals" / change.id
    proposal.save(place, change, patch, passport.signed(bench.key))
    return proposal.load(place, bench.key)


@dataclass(frozen=True)
class _Work:
    bench: Bench
    run: RunDir
    job: Job
    base: Base
    solver: Solver
    gate: Gate
    notes: bool
    broken: list[tuple[StopReason, str]] = field(default_factory=list)

    async def attempt(self, number: int) -> None:
        """One attempt to its row. What infrastructure broke leaves none: it is owed again."""
        recipe = recipe_of(self.base, self.bench.environment)
        spec = self.bench.environment.spec(self.gate.tree, recipe)
        agents = self.base.files.get("AGENTS.md")
        told = (agents.content or b"").decode("utf-8", "replace") if agents and self.notes else ""
        ask = Ask(
            name=f"{self.run.path.name}-{number}",
            number=number,
            statement=jobs.statement(self.job.issue, told, self.job.network),
            spec=spec,
            seed=_seed(self.job.seed, number),
            tell=self.bench.tell,
            refusal=self.gate.rules.commands.refusal,
            network=tuple(map(Allowed.parse, self.job.network)),
            python=self.bench.environment.python,
        )
        got = await self.solver.attempt(ask)
        trace = got.trace
        if STOP_POLICY[trace.stop].retry:
            self.broken.append((trace.stop, trace.error))
            return
        change = change_of(self.base, got.delta)
        odd = worth_telling(got.left_out, got.delta, self.base.files.get)
        if odd:
            more = (*change.left_out, *map(str, odd))
            change = change.model_copy(update={"left_out": more})
        row = AttemptRow(
            number=number,
            stop=trace.stop,
            turns=len(trace.turns),
            generated_tokens=trace.generated_tokens,
            seconds=trace.seconds,
            error=trace.error,
        )
        if change.files:
            self.bench.say(f"attempt {number}: {trace.stop.value}; the gate runs")
            passport = await self._propose(change, got, spec, f"{number}")
            row = row.model_copy(
                update={
                    "proposal": passport.proposal,
                    "verdict": passport.gate.verdict,
                    "newly_passing": len(passport.gate.tests.newly_passing),
                }
            )
        else:
            if change.left_out:
                told = "; ".join(change.left_out)
                self.bench.say(f"attempt {number}: changed only what no patch holds: {told}")
            self.run.save_trace(trace, f"{number}")
        self.run.append(TABLE, row)

    async def _propose(
        self, change: Change, got: Attempted, spec: SandboxSpec, name: str
    ) -> Passport:
        report = await self.gate.judge(change, self.job.issue)
        patch = change.patch()
        trace = self.run.save_trace(got.trace, name)
        passport = Passport(
            proposal=change.id,
            made_at=jobs.now(),
            statement=self.job.issue,
            base=_facts(self.base),
            change_sha256=sha256(change.model_dump_json().encode()),
            patch_sha256=sha256(patch),
            trace_sha256=sha256((self.run.path / trace).read_bytes()),
            trace=trace,
            sandbox=_sandbox(spec, got, self.job.network),
            model=self.solver.model,
            harness=self.solver.harness,
            commands=(*commands_of(got.trace), *_gate_commands(report.tests.command)),
            rules=self.gate.rules,
            gate=report,
        ).signed(self.bench.key)
        place = self.run.directory(f"proposals/{change.id}")
        if not (place / proposal.PASSPORT).exists():  # else another attempt came to the same
            proposal.save(place, change, patch, passport)
        return passport


def _seed(seed: int, number: int) -> int:
    """A random stream of its own for each attempt."""
    return int.from_bytes(hashlib.sha256(f"solve {seed} {number}".encode()).digest()[:6], "big")


def _facts(base: Base) -> BaseFacts:
    return BaseFacts(commit=base.commit, digest=base.digest, dirty=base.dirty)


def _sandbox(spec: SandboxSpec, got: Attempted, network: tuple[str, ...]) -> SandboxFacts:
    limits = spec.limits
    return SandboxFacts(
        engine=got.engine,
        network=network,
        reached=got.reached,
        mounts=tuple(sorted(spec.mounts)),
        call_seconds=limits.call_seconds,
        memory=limits.memory,
        processes=limits.processes,
        disk=limits.disk,
    )


def _gate_commands(command: str) -> tuple[CommandRun, ...]:
    return (CommandRun(command=f"gate: {command}", error=False, seconds=0.0),)


def at(base: Base, environment: Environment) -> str:
    """One line for a person about what is worked on."""
    state = "with what is not committed" if base.dirty else "as committed"
    return (
        f"{base.commit[:12]} {state}, {len(base.files)} files; environment: {environment.found_by}"
    )
