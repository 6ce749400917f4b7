"""Rollouts and updates that overlap, with a policy lag that is bounded in updates.

Updates are made in order, each from the episodes that were planned for it: a batch is never made
of whatever finished first, which would favour short episodes. Update ``u`` trains weights that
have seen ``u - 1`` updates (their version). These rules hold at any time:

* An episode of update ``u`` begins only once version ``u - 1 - max_lag`` is in force. Versions
  only grow, so no token lags more than ``max_lag`` updates behind the weights that it trains.
* A free place goes to the oldest update that still owes an episode.
* An episode that infrastructure broke is void: it is made again up to ``retries`` times and then
  left out. It never counts as a failure of the policy.
* Once the learner is free it waits at most ``patience`` seconds for the rest of a batch. What is
  not there by then is cancelled and left out.
* At most one whole batch waits for the learner. Running further ahead would only make it older.

Time is that of the running event loop, so that a simulation drives this very code.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from tadpole.together import end

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(eq=False)
class Batch(Generic[Job, Result]):
    """The episodes of one update: ``results[i]`` is that of ``jobs[i]``, None where it is void."""

    update: int
    jobs: Sequence[Job]
    results: list[Result | None] = field(init=False)
    owed: deque[int] = field(init=False)  # indices of the jobs that have not begun
    tries: list[int] = field(init=False)
    running: set[asyncio.Task[Result | None]] = field(default_factory=set)
    voided: int = 0  # attempts that infrastructure broke
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.results = [None] * len(self.jobs)
        self.owed = deque(range(len(self.jobs)))
        self.tries = [0] * len(self.jobs)
        self.look()

    def look(self) -> None:
        """Settle where nothing is owed and nothing runs."""
        if not self.owed and not self.running:
            self.settled.set()

    def take(self, index: int, result: Result | None, retries: int) -> None:
        """Keep the result of an episode; owe it again where it is void."""
        self.results[index] = result
        if result is None:
            self.voided += 1
            if self.tries[index] <= retries:
                self.owed.appendleft(index)

    def give_up(self) -> None:
        """Cancel what runs and forget what is owed."""
        self.owed.clear()
        for task in self.running:
            task.cancel()


@dataclass(kw_only=True)
class Scheduler(Generic[Job, Result]):
    """Makes the episodes of updates ``first`` to ``last`` and hands them to the learner in order.

    ``plan`` names an update's episodes. ``attempt`` makes one; None says that infrastructure
    broke it, an exception ends the run. ``learn`` gets the results in the order of the plan and
    returns once the new weights are in force. ``places`` bounds the episodes under way.
    """

    plan: Callable[[int], Sequence[Job]]
    attempt: Callable[[Job], Coroutine[Any, Any, Result | None]]
    learn: Callable[[int, Batch[Job, Result]], Coroutine[Any, Any, None]]
    max_lag: int = 0  # updates
    places: int = 256
    patience: float | None = None  # seconds; None: for ever
    retries: int = 2

    def __post_init__(self) -> None:
        self._batches: dict[int, Batch[Job, Result]] = {}  # that the learner has not taken
        self._running: set[asyncio.Task[Result | None]] = set()
        self._version = self._taken = self._last = 0
        self._learning = self._closed = False
        self._failure: BaseException | None = None

    @property
    def waiting(self) -> int:
        """Whole batches that the learner is not free to take."""
        return sum(batch.settled.is_set() for batch in self._batches.values()) * self._learning

    @property
    def under_way(self) -> int:
        """Episodes that run."""
        return len(self._running)

    async def run(self, first: int, last: int) -> None:
        """Make updates ``first`` to ``last``; ``first - 1`` have been applied already.

        Raises what an attempt or the learner raises; nothing of it runs on afterwards.
        """
        self._version, self._taken, self._last = first - 1, first - 1, last
        try:
            for update in range(first, last + 1):
                batch = await self._collect(update)
                await self.learn(update, batch)
                self._version, self._learning = update, False
        finally:
            self._closed = True
            await end(self._running)

    async def _collect(self, update: int) -> Batch[Job, Result]:
        """The whole batch of an update, or what there is of it when patience ends."""
        self._fill()
        batch = self._batches[update]
        try:
            async with asyncio.timeout(self.patience):
                await batch.settled.wait()
        except TimeoutError:
            batch.give_up()
        if self._failure is not None:
            raise self._failure
        del self._batches[update]
        self._taken, self._learning = update, True
        self._fill()
        return batch

    def _fill(self) -> None:
        """Begin all episodes that may begin now."""
        if self._closed or self._failure is not None:
            return
        newest = min(self._last, self._version + 1 + self.max_lag)
        for update in range(self._taken + 1, newest + 1):
            if update not in self._batches:
                self._batches[update] = Batch(update, self.plan(update))
            batch = self._batches[update]
            while batch.owed and self._may_begin(batch):
                if len(self._running) >= self.places:
                    return
                self._begin(batch, batch.owed.popleft())

    def _may_begin(self, batch: Batch[Job, Result]) -> bool:
        """Whether one more episode of ``batch`` cannot leave two whole batches waiting.

        Only a batch whose last episode has begun can become whole: one of those may wait, and
        one more is taken at once where the learner is free.
        """
        if len(batch.owed) > 1 or batch.update == self._taken + 1:
            return True
        begun = sum(not other.owed for other in self._batches.values())
        return begun < (1 if self._learning else 2)

    def _begin(self, batch: Batch[Job, Result], index: int) -> None:
        batch.tries[index] += 1
        task = asyncio.create_task(self.attempt(batch.jobs[index]))
        self._running.add(task)
        batch.running.add(task)
        task.add_done_callback(partial(self._ended, batch, index))

    def _ended(
        self, batch: Batch[Job, Result], index: int, task: asyncio.Task[Result | None]
    ) -> None:
        self._running.discard(task)
        batch.running.discard(task)
        given_up = batch.update <= self._taken
        if not task.cancelled() and task.exception() is not None:
            if not given_up:
                self._fail(task.exception())
        elif not given_up:
            batch.take(index, None if task.cancelled() else task.result(), self.retries)
            batch.look()
        self._fill()

    def _fail(self, error: BaseException | None) -> None:
        self._failure = self._failure or error
        for batch in self._batches.values():
            batch.settled.set()  # wakes the learner, which raises it
