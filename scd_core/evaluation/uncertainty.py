"""How far a score would move with other test items of the same kind: the paired bootstrap.

It says nothing of other seeds or other training data: that is the spread over runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

RESAMPLES = 4000
LEVEL = 0.95
_SEED = 20220501
_BLOCK = 200
"""Resamples held at a time."""


class Items(Protocol):
    """What a score is computed from, item by item."""

    @property
    def count(self) -> int:
        """Items the score is over."""
        ...

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """What it was made from, each (items,), by the names of its arguments."""
        ...

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """(resamples,) scores x 100 where item i counts ``weights[..., i]`` times.

        weights: (resamples, items), whole numbers that sum to ``count``. NaN where there is none.
        """
        ...


class Ranked:
    """Items of a rank correlation: cosine and gold score of each pair."""

    def __init__(self, cosines: np.ndarray, gold: np.ndarray) -> None:
        """Both (pairs,)."""
        self.count = len(gold)
        self.arrays = {"cosines": cosines, "gold": gold}
        self._ties = [np.unique(column, return_inverse=True)[1] for column in (cosines, gold)]

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """Spearman's correlation x 100, ties by average rank."""
        first, second = (self._centred(groups, weights) for groups in self._ties)
        covariance = (weights * first * second).sum(axis=1)
        spread = (weights * first**2).sum(axis=1) * (weights * second**2).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return 100 * covariance / np.sqrt(spread)

    def _centred(self, groups: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Average rank of each item among the drawn ones, less the mean rank."""
        sizes = np.stack([np.bincount(groups, w) for w in weights])  # (resamples, distinct values)
        ranks = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return ranks[:, groups] - (self.count + 1) / 2


class Judged:
    """Items of an accuracy: whether each is right."""

    def __init__(self, right: np.ndarray) -> None:
        """right: (items,) truth values."""
        self.count = len(right)
        self.arrays = {"right": right}
        self._right = right.astype(np.float64)

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """Share of right items x 100."""
        return 100 * (weights @ self._right) / self.count


@dataclass(frozen=True)
class Interval:
    """Percentile interval that holds ``LEVEL`` of the resampled values; points."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """Score of one encoder less that of another on the same items; points."""

    value: float
    interval: Interval
    p: float
    """Two-sided: twice the share of resamples on the other side of 0, not below 2 in their number
    and 1. Not yet corrected for how many differences are looked at: see ``holm``."""


def interval(items: Items) -> Interval | None:
    """Of one score; None where a resample has none, as with nearly constant cosines."""
    return _interval(resampled(items))


def difference(items: Items, others: Items) -> Difference | None:
    """Of two encoders over the same items in the same order, drawn together.

    Returns None where a resample has no score.

    Raises:
        ValueError: they have different numbers of items.
    """
    if items.count != others.count:
        raise ValueError(f"{items.count} and {others.count} items cannot be compared item by item")
    once = np.ones((1, items.count))
    value = float((items.scores(once) - others.scores(once))[0])
    return judged_difference(value, resampled(items) - resampled(others))


def judged_difference(value: float, resampled_values: np.ndarray) -> Difference | None:
    """A difference with its interval and p-value, from its values over the same resamples.

    Args:
        value: the difference itself.
        resampled_values: (resamples,) of both sides drawn together; several seeds of a side, or
            several tasks, are averaged before.

    Returns None where a resample has no score.
    """
    found = _interval(resampled_values)
    if found is None:
        return None
    tail = 1 + min((resampled_values <= 0).sum(), (resampled_values >= 0).sum())
    return Difference(value, found, float(min(1.0, 2 * tail / (1 + len(resampled_values)))))


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm, 1979), in the order given.

    Of those at most 0.05, the chance that even one is of two encoders that are equal there is 0.05.
    """
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        running = max(running, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = running
    return adjusted


def _interval(resampled: np.ndarray) -> Interval | None:
    if not np.isfinite(resampled).all():
        return None
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def resampled(items: Items, stream: str = "", resamples: int = RESAMPLES) -> np.ndarray:
    """(resamples,) scores x 100; NaN where a resample has none.

    The draws depend on the number of items and the stream alone, so two encoders on one task are
    drawn together. Tasks that are averaged need streams of their own, or the draws of one would go
    with those of another.
    """
    draws = _draws(items.count, stream, resamples)
    return np.concatenate([items.scores(weights) for weights in draws])


def _draws(count: int, stream: str, resamples: int) -> Iterator[np.ndarray]:
    """How often each of ``count`` items is drawn: blocks of (resamples, count)."""
    rng = np.random.default_rng([_SEED, *stream.encode()])
    for start in range(0, resamples, _BLOCK):
        drawn = rng.integers(count, size=(min(_BLOCK, resamples - start), count))
        yield np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
