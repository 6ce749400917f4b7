"""What the thread that owns a model is asked for: turns to decode, and work between them."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tadpole.protocols import Sampled, Sampling


@dataclass(eq=False)
class Request:
    """A turn that somebody waits for, and what of it is decoded."""

    prompt: list[int]
    sampling: Sampling
    episode: str
    generator: torch.Generator
    limit: int  # tokens that may still be generated
    future: "asyncio.Future[Sampled]"
    loop: asyncio.AbstractEventLoop
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def is_given_up(self) -> bool:
        """Whether who asked was cancelled: the answer would reach nobody."""
        return self.future.cancelled()

    def finish(self, sampled: Sampled | Exception) -> None:
        """Answer who asked, in their own thread."""

        def deliver() -> None:
            if self.future.done():
                return
            if isinstance(sampled, Exception):
                self.future.set_exception(sampled)
            else:
                self.future.set_result(sampled)

        # The loop may be gone when a run is torn down; nobody waits for the answer then.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(deliver)


@dataclass(eq=False)
class Errand:
    """What the decoding thread is to do once no turn is open."""

    work: Callable[[], None]
    future: "concurrent.futures.Future[None]" = field(default_factory=concurrent.futures.Future)

    def run(self) -> None:
        """Do it, and tell who waits."""
        if not self.future.set_running_or_notify_cancel():
            return  # nobody waits for it any more
        try:
            self.work()
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(None)

    def refuse(self, error: Exception) -> None:
        """Tell who waits that it will not be done."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)
