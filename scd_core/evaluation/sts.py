"""Spearman correlation of cosine and gold score over all pairs of a task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from scd_core.evaluation.tasks import Pairs

Encode = Callable[[Sequence[str]], np.ndarray]
"""From n sentences to their vectors, (n, hidden) float32, row i of sentence i."""

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

    @property
    def key(self) -> str:
        """Name of the tracked metric, e.g. ``test.sts12.spearman_all``."""
        return f"{self.split}.{self.task}.{self.metric}_{self.aggregation}"

    @property
    def text(self) -> str:
        """The value as printed: two decimals, or "undefined"."""
        return "undefined" if self.value is None else f"{self.value:.2f}"


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
    texts = (text for pairs in pairs_list for text in [*pairs.first, *pairs.second])
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    vectors = _checked(encode(list(row_of)), len(row_of)) if row_of else np.zeros((0, 1))
    return [_score(pairs, vectors, row_of) for pairs in pairs_list]


def average(scores: Sequence[Score]) -> float | None:
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


def _checked(vectors: np.ndarray, sentences: int) -> np.ndarray:
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or vectors.shape[0] != sentences or vectors.shape[1] == 0:
        raise ValueError(
            f"encode returned an array of shape {vectors.shape} for {sentences} sentences; "
            f"expected ({sentences}, hidden), one row a sentence"
        )
    return vectors


def _score(pairs: Pairs, vectors: np.ndarray, row_of: dict[str, int]) -> Score:
    first = vectors[[row_of[text] for text in pairs.first]].astype(np.float64)  # (pairs, hidden)
    second = vectors[[row_of[text] for text in pairs.second]].astype(np.float64)
    used = vectors[sorted({row_of[text] for text in [*pairs.first, *pairs.second]})]
    zero_vectors = int((~used.any(axis=1)).sum())
    return Score(
        pairs.name, pairs.split, _value(first, second, pairs.gold), len(pairs.gold), zero_vectors
    )


def _value(first: np.ndarray, second: np.ndarray, gold: np.ndarray) -> float | None:
    if not len(gold) or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)  # (pairs,)
    whole = norms > 0
    cosines = np.zeros(len(gold))
    np.divide((first * second).sum(axis=1), norms, out=cosines, where=whole)
    if np.ptp(gold) == 0 or not whole.any() or np.ptp(cosines[whole]) <= CONSTANT_COSINES:
        return None
    return 100 * float(spearmanr(cosines, gold).statistic)
