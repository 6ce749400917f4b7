"""Rollouts and updates overlap within their bounds. Time is virtual: nothing here waits."""

import asyncio
import random
from collections import Counter

import pytest

from bench.schedule import Shape, simulate
from bench.virtualtime import run_virtual
from tadpole.errors import SandboxUnavailable
from tadpole.rl.scheduler import Scheduler


class Script:
    """Episodes and updates that take scripted times, and a log of all that happened."""

    def __init__(self, episode, update=10.0, jobs=4, breaks=lambda job, nth: False):
        self.episode, self.update_seconds, self.jobs, self.breaks = episode, update, jobs, breaks
        self.version = 0
        self.begun, self.cancelled, self.tries = [], [], Counter()
        self.learned, self.waiting, self.under_way = [], [], []
        self.scheduler = None

    async def attempt(self, job):
        at = asyncio.get_running_loop().time()
        nth = self.tries[job]
        self.tries[job] += 1
        self.begun.append((at, job, self.version))
        begun = self.version
        self.under_way.append(self.scheduler.under_way)
        try:
            await asyncio.sleep(self.episode(job))
        except asyncio.CancelledError:
            self.cancelled.append(job)
            raise
        return None if self.breaks(job, nth) else (job, begun)

    async def learn(self, update, batch):
        loop = asyncio.get_running_loop()
        start = loop.time()
        for _ in range(100):
            await asyncio.sleep(self.update_seconds / 100)
            self.waiting.append(self.scheduler.waiting)
        self.version = update
        self.learned.append((update, start, list(batch.results), batch.voided))

    def run(self, last=6, first=1, **options):
        async def main():
            self.version = first - 1
            self.scheduler = Scheduler(
                plan=lambda update: [(update, n) for n in range(self.jobs)],
                attempt=self.attempt,
                learn=self.learn,
                **options,
            )
            await self.scheduler.run(first, last)
            return asyncio.get_running_loop().time()

        return run_virtual(main())

    def lags(self):
        return [u - 1 - made[1] for u, _, results, _ in self.learned for made in results if made]


def ragged(seed=0, mean=8.0):
    rng = random.Random(seed)
    seconds = {}
    return lambda job: seconds.setdefault(job, rng.expovariate(1 / mean))


class TestLag:
    def test_lag_0_alternates(self):
        script = Script(lambda job: 5.0)
        assert script.run(last=3) == pytest.approx(3 * (5 + 10))
        assert set(script.lags()) == {0}
        starts = sorted({at for at, _, _ in script.begun})
        assert starts == pytest.approx([0, 15, 30])

    def test_lag_1_hides_the_rollout_behind_the_update(self):
        script = Script(lambda job: 5.0)
        # The first rollout is waited for; each later one runs while an update does.
        assert script.run(last=3, max_lag=1) == pytest.approx(5 + 3 * 10)
        assert script.lags() == [0] * 4 + [1] * 8

    @pytest.mark.parametrize("lag", [0, 1, 3])
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("places", [1, 3, 100])
    def test_the_bounds_hold_whatever_the_lengths(self, lag, seed, places):
        broken = random.Random(seed)
        script = Script(
            ragged(seed),
            update=random.Random(seed).choice((0.5, 8.0, 60.0)),
            breaks=lambda job, nth: broken.random() < 0.2,
        )
        script.run(last=12, max_lag=lag, places=places)
        assert [update for update, *_ in script.learned] == list(range(1, 13))
        assert max(script.lags()) <= lag
        assert max(script.waiting) <= 1
        assert max(script.under_way) <= places
        for update, _, results, _ in script.learned:  # every episode in its place
            assert all(r is None or r[0] == (update, n) for n, r in enumerate(results))

    def test_lag_3_is_used(self):
        script = Script(lambda job: 40.0, update=5.0)
        script.run(last=12, max_lag=3)
        assert max(script.lags()) == 3

    def test_nothing_beyond_the_last_update_is_begun(self):
        script = Script(lambda job: 1.0)
        script.run(last=2, max_lag=3)
        assert {job[0] for _, job, _ in script.begun} == {1, 2}

    def test_a_resumed_run_begins_after_what_is_done(self):
        script = Script(lambda job: 1.0)
        script.run(first=5, last=6, max_lag=1)
        assert [update for update, *_ in script.learned] == [5, 6]
        assert {job[0] for _, job, _ in script.begun} == {5, 6}
        assert max(script.lags()) <= 1

    def test_the_oldest_update_comes_first(self):
        script = Script(lambda job: 1.0, update=0.1)
        script.run(last=3, max_lag=3, places=2)
        assert [job for _, job, _ in script.begun] == [(u, n) for u in (1, 2, 3) for n in range(4)]

    def test_a_straggler_does_not_idle_the_other_places(self):
        slow = {(1, 0): 50.0}
        script = Script(lambda job: slow.get(job, 5.0), update=1.0)
        script.run(last=3, max_lag=1, places=4)
        ahead = [at for at, job, _ in script.begun if job[0] == 2]
        assert max(ahead) < 50.0  # all of update 2 began before update 1 was whole

    def test_at_most_one_batch_waits_for_a_slow_learner(self):
        script = Script(lambda job: 1.0, update=100.0)
        script.run(last=8, max_lag=3, places=100)
        assert max(script.waiting) == 1


class TestVoid:
    def test_what_infrastructure_broke_is_made_again_in_its_place(self):
        script = Script(lambda job: 1.0, breaks=lambda job, nth: job == (1, 2) and nth < 2)
        script.run(last=1, retries=2)
        _, _, results, voided = script.learned[0]
        assert [made[0] for made in results] == [(1, n) for n in range(4)]
        assert (script.tries[1, 2], voided) == (3, 2)

    def test_what_stays_broken_is_left_out_and_is_no_result(self):
        script = Script(lambda job: 1.0, breaks=lambda job, nth: job == (1, 2))
        script.run(last=1, retries=2)
        assert [made is None for made in script.learned[0][2]] == [False, False, True, False]
        assert script.tries[1, 2] == 3

    def test_an_episode_that_is_made_again_is_of_the_weights_then_in_force(self):
        script = Script(
            lambda job: 12.0, update=10.0, breaks=lambda job, nth: job == (2, 0) and nth == 0
        )
        script.run(last=2, max_lag=1, places=8)
        began = [version for _, job, version in script.begun if job == (2, 0)]
        assert began == [0, 0] or began == [0, 1]
        assert max(script.lags()) <= 1

    def test_an_error_ends_the_run_and_leaves_nothing_running(self):
        class Broken(Script):
            async def attempt(self, job):
                if job == (2, 1):
                    raise SandboxUnavailable("no user namespaces")
                return await super().attempt(job)

        script = Broken(lambda job: 1000.0 if job == (2, 0) else 1.0)
        with pytest.raises(SandboxUnavailable):
            script.run(last=3, max_lag=1)
        assert not script.learned
        assert sorted(script.cancelled) == sorted(job for _, job, _ in script.begun)

    def test_an_error_of_the_learner_ends_the_run(self):
        class Refusing(Script):
            async def learn(self, update, batch):
                raise ValueError("no")

        script = Refusing(lambda job: 30.0 if job[0] == 2 else 1.0)
        with pytest.raises(ValueError, match="no"):
            script.run(last=3, max_lag=1)
        assert {job for job in script.cancelled} == {(2, n) for n in range(4)}


class TestPatience:
    def test_a_slow_episode_is_not_waited_for_beyond_the_deadline(self):
        script = Script(lambda job: 10_000.0 if job == (1, 3) else 5.0)
        assert script.run(last=2, patience=60.0) == pytest.approx(60 + 10 + 5 + 10)
        assert script.cancelled == [(1, 3)]
        assert [made is None for made in script.learned[0][2]] == [False, False, False, True]

    def test_the_clock_runs_only_while_the_learner_is_free(self):
        script = Script(lambda job: 30.0 if job == (2, 0) else 5.0, update=100.0)
        script.run(last=2, max_lag=1, patience=20.0)
        assert not script.cancelled  # it was late, and nobody waited

    def test_what_could_not_begin_in_time_is_left_out_too(self):
        script = Script(lambda job: 40.0)
        script.run(last=1, places=1, patience=60.0)
        assert [made is None for made in script.learned[0][2]] == [False, True, True, True]


class TestSimulation:
    SMALL = Shape(groups=4, group_size=4, places=16, engines=2, updates=8, median_turns=6)

    def test_it_is_seeded(self):
        assert simulate(self.SMALL) == simulate(self.SMALL)
        assert simulate(self.SMALL) != simulate(Shape(**{**vars(self.SMALL), "seed": 1}))

    def test_lag_1_is_faster_than_lag_0_and_within_its_bound(self):
        figures = [simulate(Shape(**{**vars(self.SMALL), "lag": lag})) for lag in (0, 1, 3)]
        assert figures[1].rate > 1.1 * figures[0].rate
        assert [max(f.lags) <= lag for f, lag in zip(figures, (0, 1, 3), strict=True)] == [True] * 3
        assert all(f.most_waiting <= 1 for f in figures)

    def test_256_episodes_on_64_engines(self):
        shape = Shape(engines=64, updates=3, median_turns=4, broken=0.05)
        figures = simulate(shape)
        assert figures.most_under_way == 256
        assert figures.tokens > 0 and max(figures.lags) <= 1
