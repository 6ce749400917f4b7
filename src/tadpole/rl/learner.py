"""One optimizer step from one batch of trajectories, and the state that it carries.

The published optimizer: Adam (decoupled weight decay), constant learning rate, gradient clipped
to norm 1, no reference KL and no entropy bonus.
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from tadpole.errors import TrainerError
from tadpole.models.loading import first_not_finite
from tadpole.models.memory import give_back
from tadpole.models.slots import has_plain_attention
from tadpole.rl.batch import MicroBatch, Sample, micro_batches
from tadpole.rl.logprob import token_logprobs
from tadpole.rl.loss import kept_tokens, policy_loss


@dataclass(frozen=True)
class UpdateStats:
    """What one update did. Probabilities, not logarithms, in the two p - q figures."""

    loss: float
    grad_norm: float  # before clipping
    tokens: int  # |T|
    mean_abs_pq: float
    max_abs_pq: float
    dropped_share: float
    entropy: float  # nats a token
    seconds_model: float  # in forward, backward and optimizer
    skipped: str = ""  # why no step was taken


class Learner:
    """Owns the optimizer of a model. ``dtype`` bfloat16 means autocast over float32 weights."""

    def __init__(
        self,
        model: Any,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.98),
        weight_decay: float = 0.1,
        grad_clip: float = 1.0,
        delta: float = 0.2,
        temperature: float = 1.0,
        dtype: torch.dtype = torch.float32,
        micro_batch_tokens: int = 2048,
        max_mean_gap: float = 0.05,
        max_dropped_share: float = 1.0,
        spike_norm: float = 0.0,
        checkpointing: bool = False,
    ):
        self.model = model
        self.lr = lr
        self.grad_clip = grad_clip
        self.delta = delta
        self.temperature = temperature
        self.dtype = dtype
        self.micro_batch_tokens = micro_batch_tokens
        self.max_mean_gap = max_mean_gap
        self.max_dropped_share = max_dropped_share
        self.spike_norm = spike_norm
        if checkpointing:
            # The later name of the same, where this transformers has it.
            enable = getattr(model, "activation_checkpointing_enable", None)
            (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
        self.share = has_plain_attention(model.config)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=True
        )

    def update(self, samples: Sequence[Sample]) -> UpdateStats:
        """Apply one step. Raises TrainerError, with the weights untouched, where it must not be.

        That is: nothing to train on, sampling and training probabilities that disagree by more
        than ``max_mean_gap`` in the mean, or more than ``max_dropped_share`` of the tokens
        outside the trust region. Raises it, too, where the step itself left weights that are not
        finite: they are lost then. A loss or gradient that is not finite, or a gradient longer
        than ``spike_norm`` (0: any), skips the step; ``skipped`` says why.
        """
        trainable = sum(sample.trainable for sample in samples)
        if not trainable:
            raise TrainerError("an update needs at least one trainable token")
        total, gaps, worst, dropped, entropy = 0.0, 0.0, 0.0, 0, 0.0
        self._seconds = 0.0
        with self._training():
            for batch in micro_batches(samples, self.micro_batch_tokens, self.share):
                with self._timed():
                    logp_N, entropy_N = self._score(batch)
                logq_N = batch.logq_N.to(logp_N.device)
                advantage_N = batch.advantage_N.to(logp_N.device)
                with self._timed():
                    loss = policy_loss(logp_N, logq_N, advantage_N, trainable, self.delta)
                    loss.backward()  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    gap_N = (logp_N.exp() - logq_N.exp()).abs()
                    total += float(loss)
                    gaps += float(gap_N.sum())
                    worst = max(worst, float(gap_N.max()))
                    dropped += int((~kept_tokens(logp_N, logq_N, advantage_N, self.delta)).sum())
                    entropy += float(entropy_N.sum())
                give_back()
        with self._timed():
            norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.grad_clip))
        stats = UpdateStats(
            loss=total,
            grad_norm=norm,
            tokens=trainable,
            mean_abs_pq=gaps / trainable,
            max_abs_pq=worst,
            dropped_share=dropped / trainable,
            entropy=entropy / trainable,
            seconds_model=0.0,
        )
        skipped = self._step_or_refuse(stats)
        return replace(stats, seconds_model=self._seconds, skipped=skipped)

    def imitate(self, samples: Sequence[Sample], lr_share: float = 1.0) -> float:
        """One step of maximum likelihood on the marked tokens; the mean loss in nats a token.

        ``lr_share`` scales the learning rate of this step.
        """
        trainable = sum(sample.trainable for sample in samples)
        total = 0.0
        with self._training():
            for batch in micro_batches(samples, self.micro_batch_tokens, self.share):
                logp_N, _ = self._score(batch)
                loss = -logp_N.sum() / trainable
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
                give_back()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.grad_clip)
        for settings in self.optimizer.param_groups:
            settings["lr"] = self.lr * lr_share
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        give_back()
        return total

    def save(self, path: Path) -> None:
        """Write the optimizer's state beside ``path``, then replace it."""
        beside = path.with_suffix(".tmp")
        torch.save(self.optimizer.state_dict(), beside)
        os.replace(beside, path)

    def load(self, path: Path) -> None:
        """Continue with the optimizer's state as :meth:`save` wrote it.

        Raises TrainerError where it is damaged, or of other parameters.
        """
        try:
            self.optimizer.load_state_dict(torch.load(path, weights_only=True))
        except (OSError, EOFError, ValueError, RuntimeError, KeyError, UnpicklingError) as error:
            raise TrainerError(
                f"{path} cannot be read ({' '.join(str(error).split())[:200]}): remove it, and the "
                "optimizer goes on with new moments"
            ) from None

    def _score(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        with self._numerics():
            return token_logprobs(self.model, batch, self.temperature)

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Training mode, left however this ends.

        The same model may be sampled next: in training mode it would drop out, and decode without
        its cache where it is checkpointed.
        """
        self.model.train()
        try:
            yield
        finally:
            self.model.eval()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)
        self._seconds += time.perf_counter() - start

    def _numerics(self) -> Any:
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=self.dtype)

    def _step_or_refuse(self, stats: UpdateStats) -> str:
        """Take the step; why it was skipped, where it was."""
        wrong, skipped = None, ""
        if not (math.isfinite(stats.loss) and math.isfinite(stats.grad_norm)):
            skipped = f"loss {stats.loss} or gradient norm {stats.grad_norm} is not finite"
        elif 0 < self.spike_norm < stats.grad_norm:
            skipped = f"gradient norm {stats.grad_norm:.3g} is above {self.spike_norm:g}"
        elif stats.mean_abs_pq > self.max_mean_gap:
            wrong = (
                f"mean |p - q| is {stats.mean_abs_pq:.4f}, above {self.max_mean_gap}: the engine "
                "samples from another distribution than the one that is trained "
                "(--train.max_mean_gap sets the limit)"
            )
        elif stats.dropped_share > self.max_dropped_share:
            wrong = (
                f"{stats.dropped_share:.0%} of the tokens are outside the trust region, above "
                f"{self.max_dropped_share:.0%}: the policy has moved too far from the one that "
                "sampled them (--train.max_dropped_share sets the limit; a lower --train.lr or "
                "--train.max_lag takes another --run.dir)"
            )
        if wrong is None and not skipped:
            with self._timed():
                self.optimizer.step()
            name = first_not_finite(self.model)
            if name is not None:
                wrong = f"the update left weights that are not finite, first {name}"
        self.optimizer.zero_grad(set_to_none=True)
        give_back()
        if wrong is not None:
            raise TrainerError(wrong)
        return skipped
