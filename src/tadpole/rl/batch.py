"""From trajectories to micro-batches, with a group's common prompt computed once. Pure.

The trajectories of one task begin alike. They are laid out in one row, ``prefix, rest 1,
rest 2, ...``; every rest keeps the positions it had and sees the prefix and itself only, so that
each token gets the very probability it has in a row of its own, for about half the work. Attention
computes all pairs of a row, also those that are masked: a row takes in as many rests as that pays.

B is the number of rows, T the longest, N the number of trainable tokens of the micro-batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from tadpole.trace import Tokens

# Pairs of attention that cost as much as all else of one token (measured: 576 wide, on a CPU; it is
# more in wider models, where sharing pays for longer).
PAIRS = 1000
PREFIX, PADDING = 0, -1  # segment numbers; the rests of a row count from 1


@dataclass(frozen=True)
class Sample:
    """One trajectory with the advantage of all its generated tokens."""

    tokens: Tokens
    advantage: float

    @property
    def trainable(self) -> int:
        """How many tokens carry loss."""
        return sum(self.tokens.loss_mask)

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens before the first generated one."""
        return self.tokens.ids[: self.tokens.loss_mask.index(1)]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of tokens, and what is asked of them."""

    ids_BT: torch.Tensor  # int64
    position_BT: torch.Tensor  # int64, position in the trajectory
    segment_BT: torch.Tensor  # int64, see PREFIX and PADDING
    predictor_N: torch.Tensor  # int64, index into B * T of the token whose output predicts ...
    target_N: torch.Tensor  # int64, ... this token id
    logq_N: torch.Tensor  # float32, its rollout log-probability in nats
    advantage_N: torch.Tensor  # float32

    @property
    def shared(self) -> bool:
        """Whether any row holds more than one trajectory."""
        return bool((self.segment_BT > 1).any())

    def attention_B1TT(self) -> torch.Tensor:
        """Boolean mask: who may see whom. Padding sees itself, lest its softmax be empty."""
        segment_BT1, segment_B1T = self.segment_BT[:, :, None], self.segment_BT[:, None, :]
        length = self.segment_BT.shape[1]
        causal_TT = torch.ones(length, length, dtype=torch.bool).tril()
        visible_BTT = causal_TT & ((segment_B1T == PREFIX) | (segment_B1T == segment_BT1))
        return visible_BTT[:, None]


@dataclass
class _Row:
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    predictors: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    logqs: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)

    def add(self, tokens: Tokens, advantage: float, start: int, segment: int) -> None:
        """Append a trajectory's tokens from ``start`` on."""
        before = start - 1  # where the row holds the token at position ``start - 1``
        for position in range(start, len(tokens.ids)):
            if tokens.loss_mask[position]:
                self.predictors.append(before)
                self.targets.append(tokens.ids[position])
                self.logqs.append(tokens.logprobs[position])
                self.advantages.append(advantage)
            before = len(self.ids)
            self.ids.append(tokens.ids[position])
            self.positions.append(position)
            self.segments.append(segment)


def micro_batches(
    samples: Sequence[Sample], max_tokens: int, share: bool = True
) -> Iterator[MicroBatch]:
    """Lay out ``samples`` in rows of at most ``max_tokens``, and rows in micro-batches of B * T.

    A single longer trajectory makes a row of its own. The order is deterministic. ``share``
    False gives every trajectory its own row, for models that are not pure attention.
    """
    rows = _rows(samples, max_tokens, share)
    rows.sort(key=lambda row: (-len(row.ids), row.ids))
    chosen: list[_Row] = []
    for row in rows:
        # The first is the longest: it sets the padded length of all that follow.
        if chosen and (len(chosen) + 1) * len(chosen[0].ids) > max_tokens:
            yield _pad(chosen)
            chosen = []
        chosen.append(row)
    if chosen:
        yield _pad(chosen)


def _rows(samples: Sequence[Sample], max_tokens: int, share: bool) -> list[_Row]:
    groups: dict[object, list[Sample]] = {}
    for index, sample in enumerate(samples):
        if sample.trainable:
            groups.setdefault(sample.prefix if share else index, []).append(sample)
    rows = []
    for members in groups.values():
        row, segment = _Row(), 0
        for sample in members:
            prefix = len(sample.prefix)
            assert prefix, "the first token of a trajectory cannot be trained on"
            rest = len(sample.tokens.ids) - prefix
            full = len(row.ids) + rest > max_tokens
            if not row.ids or full or not _pays(len(row.ids), prefix, rest):
                row, segment = _Row(), 0
                rows.append(row)
                row.ids, row.positions = list(sample.prefix), list(range(prefix))
                row.segments = [PREFIX] * prefix
            segment += 1
            row.add(sample.tokens, sample.advantage, prefix, segment)
    return rows


def _pays(length: int, prefix: int, rest: int) -> bool:
    """Whether ``rest`` tokens cost less in a row of ``length`` than in another, with the prefix.

    The row's new pairs less those of the rest alone, against what the prefix costs again.
    """
    return 2 * length * rest < prefix * (prefix + 2 * rest + PAIRS)


def _pad(rows: Sequence[_Row]) -> MicroBatch:
    longest = max(len(row.ids) for row in rows)

    def padded(lists: list[list[int]], filler: int) -> torch.Tensor:
        return torch.tensor([[*items, *[filler] * (longest - len(items))] for items in lists])

    return MicroBatch(
        ids_BT=padded([row.ids for row in rows], 0),
        position_BT=padded([row.positions for row in rows], 0),
        segment_BT=padded([row.segments for row in rows], PADDING),
        predictor_N=torch.tensor(
            [number * longest + at for number, row in enumerate(rows) for at in row.predictors]
        ),
        target_N=torch.tensor([target for row in rows for target in row.targets]),
        logq_N=torch.tensor([logq for row in rows for logq in row.logqs]),
        advantage_N=torch.tensor([float(a) for row in rows for a in row.advantages]),
    )
