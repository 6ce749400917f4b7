"""Tier 3: a change that passed has to pass and fail rewritten tests as a right one would.

Pairs of complementary variants (:mod:`tadpole.grading.variants`) run in fresh boxes of their
own. The change holds where in every one of them exactly those tests passed that should. A test
that ended otherwise speaks against the change only where it ends as it should with the gold, on
the very same variant: what is drawn to compare with may be nothing that the library compares
with, and a test that fails may leave something to the next one. Where it does not, the function is
left alone and the others are drawn anew.

Guards against a process that is wholly under the control of the code under test: whatever it
reports, it does not know which tests must fail. The two runs of a pair differ in what is compared
with, so that one of them must end as the other must not: a process that cannot tell the two
apart is right in both with a chance of 1 in 4 for each function whose test it does not satisfy.
Where nothing is compared the text itself shows which way round the check is, and that counts as
1 in 2. Where the repair shows in few functions there are more pairs, so that all together leave a
chance of 1 in 8 at most.

Does not guard against: tasks whose fail-to-pass tests hold nothing that can be rewritten (they
are graded at tier 1, and their grade says so), and what :mod:`~tadpole.grading.variants` does
not guard against.
"""

import asyncio
import dataclasses
import math
import os
import random
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tadpole.grading.report import Verdict
from tadpole.grading.run import Runner, graded_ids
from tadpole.grading.variants import PER_TEST, WAYS, Pick, Suite, Variant, function_of, pair
from tadpole.outcome import GradeStatus
from tadpole.protocols import SandboxSpec
from tadpole.task import FileChange, Task
from tadpole.together import each

BITS = 3  # of certainty, together over all rounds
COMPARED, INVERTED = 2, 1  # bits that one function adds in a round
OTHERS = 6  # pass-to-pass functions that are rewritten as well, chosen anew each time


class Challenge:
    """Draws variants and weighs their runs. Which oracles work is found once for each task."""

    def __init__(self, runner: Runner, rng: random.Random | None = None) -> None:
        self._runner = runner
        self._rng = rng or secrets.SystemRandom()
        self._usable: dict[str, dict[str, int]] = {}
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()

    async def usable(self, task: Task, spec: SandboxSpec) -> tuple[Suite, Mapping[str, int]]:
        """The graded functions of a task, and which oracle of each was found to work.

        What the task brings along is believed; otherwise its gold is run against every rewriting.
        Raises SandboxError or GraderError where that could not be told.
        """
        suite = await asyncio.to_thread(Suite.of, task, lambda path: _read(spec, path))
        if task.measured.oracles is not None:
            known = dict(task.measured.oracles)
            return suite, {n: o for n, o in known.items() if o < len(suite.oracles.get(n, ()))}
        lock = self._locks.setdefault(task.id, asyncio.Lock())
        async with lock:
            if task.id not in self._usable:
                self._usable[task.id] = await self._tried(task, spec, suite)
        return suite, self._usable[task.id]

    async def verdict(
        self, task: Task, spec: SandboxSpec, accepted: Sequence[FileChange]
    ) -> Verdict | None:
        """What all rounds say of a change that passed the real tests; None: none can be held."""
        suite, usable = await self.usable(task, spec)
        while variants := self._drawn(suite, usable):
            verdicts = await self._all_of(task, spec, accepted, variants)
            unfit = set[str]()
            for variant, verdict in zip(variants, verdicts, strict=True):
                wrong = _weighed(variant, verdict)
                if wrong is None:
                    continue
                odd = _odd(variant, verdict)
                gold = await self._run(task, spec, task.gold, variant) if odd else verdict
                if not odd or not gold.ended or not odd <= _odd(variant, gold):
                    return wrong
                unfit |= set(map(function_of, odd))
            if not unfit:
                told = f"and {len(variants)} runs of rewritten tests came out as they should"
                return Verdict(GradeStatus.GRADED, (), told)
            usable = {name: number for name, number in usable.items() if name not in unfit}
        return None

    def _drawn(self, suite: Suite, usable: Mapping[str, int]) -> list[Variant]:
        """The variants of all rounds; none where nothing that shows the repair is usable."""
        repaired = [name for name in suite.repaired if name in usable]
        others = [name for name in usable if name not in suite.repaired]
        variants = list[Variant]()
        for turn in range(rounds(suite, usable, repaired) if repaired else 0):
            more = 0 if turn else min(OTHERS, len(others))  # one round is enough for these
            names = [*repaired, *self._rng.sample(others, more)]
            variants += pair(suite, usable, names, self._rng)
        return variants

    async def _all_of(
        self,
        task: Task,
        spec: SandboxSpec,
        accepted: Sequence[FileChange],
        variants: Sequence[Variant],
    ) -> list[Verdict]:
        places = asyncio.Semaphore(len(os.sched_getaffinity(0)))

        async def one(variant: Variant) -> Verdict:
            async with places:
                return await self._run(task, spec, accepted, variant)

        return await each(map(one, variants))

    async def _run(
        self, task: Task, spec: SandboxSpec, accepted: Sequence[FileChange], variant: Variant
    ) -> Verdict:
        tests = {change.path: change for change in (*task.hidden, *variant.files)}
        return await self._runner.run(task, spec, accepted, variant.ids, list(tests.values()))

    async def _tried(self, task: Task, spec: SandboxSpec, suite: Suite) -> dict[str, int]:
        """Which rewritings do with the gold what they should."""
        found: dict[str, int] = {}
        places = asyncio.Semaphore(len(os.sched_getaffinity(0)))

        async def odd(names: Sequence[str], make: Callable[[Sequence[str]], Variant]) -> set[str]:
            """Those of which a test did not end as it should."""
            if not names:
                return set()
            variant = make(names)
            async with places:
                verdict = await self._run(task, spec, task.gold, variant)
            if verdict.ended:
                wrong = _odd(variant, verdict)
                return {name for name in names if wrong & set(suite.ids[name])}
            if len(names) == 1:
                return set(names)
            half = len(names) // 2  # one that hangs or crashes must not cost the others
            parts = await each(odd(part, make) for part in (names[:half], names[half:]))
            return set[str]().union(*parts)

        async def unfit(
            pick: Mapping[str, int], way: tuple[bool, bool], among: Sequence[str]
        ) -> set[str]:
            """Those whose picked oracle cannot be rewritten in this way."""
            able = [n for n in among if not way[0] or suite.oracles[n][pick[n]].mutate is not None]
            return await odd(able, partial(self._all, suite, pick, *way))

        lines = await self._failing_lines(task, spec)
        orders = {name: suite.order(name, lines.get(name, 0)) for name in suite.ids}
        plain, *others = WAYS  # what cannot be rewritten mostly shows at the first of them
        for turn in range(PER_TEST):
            pick = {name: got[turn] for name, got in orders.items() if turn < len(got)}
            left = [name for name in pick if name not in found]
            bad = await unfit(pick, plain, left)
            left = [name for name in left if name not in bad]
            bad = set[str]().union(*await each(unfit(pick, way, left) for way in others))
            left = [name for name in left if name not in bad]
            found |= {name: pick[name] for name in left}
        # As they will be used: what one test leaves behind may disturb another.
        for _ in range(2 if found else 0):
            names = list(found)
            for name in await odd(names, lambda some: pair(suite, found, some, self._rng)[0]):
                found.pop(name, None)
        return found

    async def _failing_lines(self, task: Task, spec: SandboxSpec) -> dict[str, int]:
        """Where the fail-to-pass tests fail without the repair."""
        verdict = await self._runner.run(task, spec, (), graded_ids(task), task.hidden)
        return {
            function_of(node): verdict.lines[node]
            for node in reversed(task.fail_to_pass)
            if node in verdict.lines
        }

    def _all(
        self,
        suite: Suite,
        pick: Mapping[str, int],
        mutated: bool,
        inverted: bool,
        names: Sequence[str],
    ) -> Variant:
        picks = {name: Pick(pick[name], mutated, inverted) for name in names}
        return suite.variant(picks, self._rng)


def rounds(suite: Suite, usable: Mapping[str, int], repaired: Sequence[str]) -> int:
    """How many pairs of variants the functions that show the repair need."""
    oracles = [suite.oracles[name][usable[name]] for name in repaired]
    bits = sum(COMPARED if oracle.mutate is not None else INVERTED for oracle in oracles)
    return math.ceil(BITS / bits)


def _odd(variant: Variant, verdict: Verdict) -> set[str]:
    """Ids that did not end as they should; none where the tests did not come to their end."""
    return set(verdict.failing) ^ variant.must_fail if verdict.ended else set()


def _weighed(variant: Variant, verdict: Verdict) -> Verdict | None:
    """What speaks against the change; None where every test ended as it should."""
    if not verdict.ended:  # tampered, or could not be told apart from a change that hangs
        return dataclasses.replace(verdict, reason=f"in rewritten tests: {verdict.reason}")
    failing = set(verdict.failing)
    passed = [node for node in variant.ids if node in variant.must_fail and node not in failing]
    failed = [node for node in variant.ids if node in failing and node not in variant.must_fail]
    if not passed and not failed:
        return None
    what = (
        f"{passed[0]} passed, rewritten so that it must fail"
        if passed
        else f"{failed[0]} failed, rewritten so that it must pass"
    )
    reason = (
        f"the real tests passed, but {what} ({len(passed) + len(failed)} of {len(variant.ids)})"
    )
    return Verdict(GradeStatus.TAMPERED, variant.ids, reason)


def _read(spec: SandboxSpec, path: str) -> bytes | None:
    file = spec.tree / path
    return file.read_bytes() if file.is_file() else None
