"""A climb whose task is to say an even token: real sampling, updates and checkpoints, no box.

Run as a program it climbs in a run directory, to be killed by a test:
``python climbing.py RUN UPDATES LAG [talk] [killed SECONDS|once]``; ``killed``: ten times within
about as many seconds, and then to its end; ``once``: soon after its first checkpoint, and then to
its end.
"""

import asyncio
import random
import sys
import time
from pathlib import Path

from tadpole.models.adapters import add_adapters
from tadpole.models.inprocess import InProcessPolicy
from tadpole.outcome import GradeStatus, Outcome, StopReason
from tadpole.protocols import Sampling
from tadpole.rl.checkpoint import checkpoints
from tadpole.rl.climb import Climb
from tadpole.rl.learner import Learner
from tadpole.rundir import RunDir
from tadpole.settings import TrainConfig
from tadpole.task import Hint, Provenance, Recipe, Source, Task, TaskKind
from tadpole.trace import Attempt, Grade, Tokens, Trace, Turn
from tests.rl.forks import killed_often
from tests.tiny import byte_tokenizer, llama

SAMPLING = Sampling(max_tokens=1)


class EvenTokens:
    """Stands where a Rollout stands: one turn, and reward 1 for an even token."""

    seconds_grading = 0.0
    concurrency = 12

    def __init__(self, policy, rundir, *, broken=frozenset(), fixed_reward=None, hangs=frozenset()):
        self.hangs = set(hangs)
        self.policy, self.rundir = policy, rundir
        self.broken, self.fixed_reward = set(broken), fixed_reward
        self.made = []

    async def attempt(self, task, sample, *, sampling, stage, seed):
        prompt = tuple(task.statement.encode())
        name = f"{stage}/{task.name}-{sample}"
        sampled = await self.policy.sample(prompt, sampling, episode=name, seed=hash_of(name, seed))
        self.policy.release(name)
        if (stage, task.name, sample) in self.hangs:
            await asyncio.sleep(3600)
        self.made.append((stage, task.name, sample))
        context = len(prompt)
        tokens = Tokens(
            ids=(*prompt, *sampled.ids),
            logprobs=(*[0.0] * context, *sampled.logprobs),
            loss_mask=(*[0] * context, 1),
            versions=(*[-1] * context, sampled.version),
        )
        return self.row(task, sample, name, seed, tokens)

    def row(self, task, sample, name, seed, tokens):
        infrastructure = (task.name, sample) in self.broken
        solved = tokens.ids[-1] % 2 == 0
        reward = float(solved) if self.fixed_reward is None else self.fixed_reward
        generated = sum(tokens.loss_mask)
        trace = Trace(
            task=task.id,
            policy=self.policy.fingerprint,
            seed=seed,
            system="",
            statement=task.statement,
            turns=(Turn(text="", generated_tokens=generated),),
            stop=StopReason.TOOL_ERROR if infrastructure else StopReason.AGENT,
            tokens=tokens,
        )
        row = Attempt(
            task=task.id,
            task_name=task.name,
            policy=trace.policy,
            sample=sample,
            stop=trace.stop,
            outcome=Outcome.INFRASTRUCTURE
            if infrastructure
            else (Outcome.RESOLVED if solved else Outcome.WRONG_PATCH),
            reward=None if infrastructure else reward,
            turns=1,
            generated_tokens=generated,
            seconds=0.0,
            grade=None if infrastructure else Grade(status=GradeStatus.GRADED, resolved=solved),
            trace=self.rundir.save_trace(trace, name),
        )
        return row, trace


class EvenTalk(EvenTokens):
    """Three turns of up to six tokens, with results and pauses of any length between them."""

    async def attempt(self, task, sample, *, sampling, stage, seed):
        name = f"{stage}/{task.name}-{sample}"
        ids = list(task.statement.encode())
        logprobs, mask, versions = [0.0] * len(ids), [0] * len(ids), [-1] * len(ids)
        for turn in range(3):
            sampled = await self.policy.sample(
                ids, Sampling(max_tokens=6), episode=name, seed=hash_of(name, seed)
            )
            for token, logprob in zip(sampled.ids, sampled.logprobs, strict=True):
                ids.append(token)
                logprobs.append(logprob)
                mask.append(1)
                versions.append(sampled.version)
            if turn < 2:
                await asyncio.sleep(random.random() / 50)  # of no seed
                result = [token % 7 + 65 for token in sampled.ids]
                ids += result
                logprobs += [0.0] * len(result)
                mask += [0] * len(result)
                versions += [-1] * len(result)
        self.policy.release(name)
        tokens = Tokens(ids=ids, logprobs=logprobs, loss_mask=mask, versions=versions)
        return self.row(task, sample, name, seed, tokens)


def hash_of(name, seed):
    return sum(ord(letter) * 31**k for k, letter in enumerate(name)) % 2**31 + seed


def tasks(number=3):
    return [
        Task(
            name=f"t{n}",
            kind=TaskKind.BUG_FIX,
            source=Source("directory", "none", "0", ""),
            snapshot="",
            runtime="",
            recipe=Recipe(),
            start=(),
            gold=(),
            hidden=(),
            fail_to_pass=("t::t",),
            pass_to_pass=(),
            hints=(Hint(0, f"say even {n}"),),
            rung=0,
            provenance=Provenance("test"),
        )
        for n in range(number)
    ]


def in_process(model, apart):
    return InProcessPolicy(
        model, end_ids=[257], fingerprint="base", slots=16, max_context=64, apart=apart
    )


def repeatable(model, apart):
    return InProcessPolicy(
        model, end_ids=[257], fingerprint="base", slots=24, max_context=96, repeatable=True
    )


def make_climb(path, updates, train=None, make_policy=None, **rollout):
    settings = TrainConfig(
        updates=updates,
        **{"groups": 3, "group_size": 8, "lr": 3e-3, "checkpoint_every": 2}
        | {"micro_batch_tokens": 512}
        | (train or {}),
    )
    run = (
        RunDir.open(path) if (path / "tadpole-run.json").exists() else RunDir.create(path, settings)
    )
    model = llama()
    if settings.lora.rank:
        add_adapters(model, settings.lora.rank, settings.lora.alpha)
    policy = (make_policy or in_process)(model, settings.max_lag > 0)
    return Climb(
        rollout=EvenTokens(policy, run, **rollout),
        policy=policy,
        learner=Learner(
            model,
            lr=settings.lr,
            micro_batch_tokens=settings.micro_batch_tokens,
            max_mean_gap=settings.max_mean_gap,
        ),
        tokenizer=byte_tokenizer(),
        rundir=run,
        settings=settings,
        sampling=SAMPLING,
        seed=0,
        base="base",
    )


def climb_to(run, updates, lag, talk):
    climb = make_climb(run, updates, {"max_lag": lag}, repeatable if talk else None)
    if talk:
        climb.rollout = EvenTalk(climb.policy, climb.rundir)
    asyncio.run(climb.run(tasks(), lambda row: print(row.update, row.mean_reward, flush=True)))
    climb.policy.close()


def main(run, updates, lag, *more):
    def work():
        climb_to(run, updates, lag, "talk" in more)

    def seen():
        made = run / "rollouts.jsonl"
        return made.stat().st_size if made.exists() else 0

    if "once" in more:
        saved = run / "checkpoints"
        killed_often(work, lambda: len(checkpoints(saved)), 1, random.Random(5), most=0.1)
    if "killed" in more:  # and how long the whole takes: the kills are to fall into it
        most = float(more[more.index("killed") + 1]) / 10
        print("kills", killed_often(work, seen, 10, random.Random(5), most), flush=True)
    begun = time.monotonic()
    work()
    print("took", time.monotonic() - begun, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
