"""Spearman correlation of cosine and gold score over all pairs of a task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from scipy.stats import spearmanr

from scd_core.evaluation.pairs import Pairs
from scd_core.evaluation.vectors import Encode, encode_once

METRIC = "spearman"
AGGREGATION = "all"
"""All files of a task pooled into one correlation, not the mean of one correlation a file."""
CONSTANT_COSINES = 1e-6
"""Cosines that differ by no more than this count as equal. float32 vectors hold a cosine to about
1e-7 and encoding in other batches moves it by a few of those, so such differences rank nothing."""


@dataclass(frozen=True)
class Score:
    """What one encoder scores on one task. Greater is better."""

    task: str
    split: str
    value: float | None
    """Correlation x 100 in [-100, 100], unrounded; None where it does not exist."""
    pairs: int
    """Pairs it is over."""
    zero_vectors: int = 0
    """Sentences of the task whose vector is zero."""
    metric: str = METRIC
    aggregation: str = AGGREGATION
    damaged: bool = False
    """The data is not what the task is declared to be: the score compares with nothing."""

    @property
    def key(self) -> str:
        """Name of the tracked metric, e.g. ``test.sts12.spearman_all``.

        It ends in ``_damaged`` where the data is, so that no table finds it.
        """
        name = f"{self.split}.{self.task}.{self.metric}_{self.aggregation}"
        return name + "_damaged" * self.damaged

    @property
    def text(self) -> str:
        """The value as printed: two decimals, or "undefined"; marked where the data is damaged."""
        value = "undefined" if self.value is None else f"{self.value:.2f}"
        return f"{value} (damaged data)" if self.damaged else value

    def record(self) -> dict[str, object]:
        """Every field, for JSON."""
        return asdict(self)


def score_pairs(pairs: Pairs, encode: Encode) -> Score:
    """Score one task; the rules are those of ``score_all``."""
    return score_all([pairs], encode)[0]


def score_all(pairs_list: Sequence[Pairs], encode: Encode) -> list[Score]:
    """Score every task, in order, with one call of ``encode`` over their distinct sentences.

    The value is Spearman's rank correlation (ties by average rank) of the gold scores and the
    cosines, computed in float64. The cosine with a zero vector is 0, and zero vectors are counted.
    The value is None, undefined, where a vector is not finite, the gold scores are all equal, or
    the encoder is constant: the cosines of pairs without a zero vector lie within
    ``CONSTANT_COSINES`` of each other. A constant encoder that is noisier than that, as one in
    half precision may be, is not recognised; its value is then near 0.

    Raises:
        ValueError: ``encode`` returned something other than (sentences, hidden).
    """
    texts = (text for pairs in pairs_list for text in pairs.texts)
    look_up = encode_once(texts, encode)
    return [score_and_cosines(pairs, look_up)[0] for pairs in pairs_list]


def score_and_cosines(pairs: Pairs, encode: Encode) -> tuple[Score, np.ndarray]:
    """Score one task by the rules of ``score_all``, with the cosines (pairs,) behind it.

    ``encode`` is asked for the same sentences several times: it should look them up.
    """
    used = list(dict.fromkeys(pairs.texts))
    not_zero: list[bool] = np.any(encode(used), axis=1).tolist()
    there = dict(zip(used, not_zero, strict=True))
    whole = [there[a] and there[b] for a, b in zip(pairs.first, pairs.second, strict=True)]
    found = _cosines(pairs, encode)
    value = _value(found, pairs.gold, np.array(whole, dtype=bool))
    score = Score(
        pairs.name,
        pairs.split,
        value,
        len(pairs.gold),
        len(used) - sum(there.values()),
        damaged=bool(pairs.damage),
    )
    return score, found


class Scored(Protocol):
    """A score of any kind."""

    @property
    def value(self) -> float | None:
        """None where it is undefined."""
        ...


def average(scores: Sequence[Scored]) -> float | None:
    """Plain mean of the unrounded values; None where one is undefined or there are none."""
    values = [score.value for score in scores if score.value is not None]
    return sum(values) / len(values) if values and len(values) == len(scores) else None


def protocol_fingerprint(pairs_list: Sequence[Pairs]) -> str:
    """Twelve hex digits over similarity, metric, aggregation and the tasks with their data.

    Scores with the same fingerprint may share a table. The order of the tasks does not matter, and
    pooling is not part of it: that belongs to the model.
    """
    tasks = sorted([pairs.split, pairs.name, pairs.fingerprint] for pairs in pairs_list)
    content = json.dumps(["cosine", METRIC, AGGREGATION, tasks])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _cosines(pairs: Pairs, encode: Encode) -> np.ndarray:
    """Cosine of each pair, (pairs,) float64; 0 with a zero vector, NaN with one not finite."""
    first, second = (encode(part).astype(np.float64) for part in (pairs.first, pairs.second))
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    found = np.zeros(len(norms))
    with np.errstate(invalid="ignore"):
        np.divide((first * second).sum(axis=1), norms, out=found, where=norms != 0)
    return found


def _value(found: np.ndarray, gold: np.ndarray, whole: np.ndarray) -> float | None:
    """``found``: cosines; ``whole``: pairs without a zero vector. All (pairs,)."""
    if not np.isfinite(found).all() or not whole.any() or np.ptp(gold) == 0:
        return None
    if np.ptp(found[whole]) <= CONSTANT_COSINES:
        return None
    return 100 * float(spearmanr(found, gold).statistic)
