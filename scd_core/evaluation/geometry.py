"""How sentence vectors lie on the unit sphere: alignment, uniformity, and measures of collapse.

Alignment and uniformity are those of Wang and Isola (2020), over the data of the SimCSE figure,
which the SCD paper's Figure 2 takes up (``released-code.md``, end): STS-B pairs with a gold score
of at least 4 are the positive pairs, and all STS-B sentences, as often as they come, the data.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from scd_core.evaluation.pairs import Pairs
from scd_core.evaluation.vectors import Encode

SCALE_TO_5 = ("stsb", "sample")
"""Tasks with such a scale, of whose pairs it is known which mean the same."""
POSITIVE = 4.0
"""Gold score from which on a pair of theirs counts as one of equal meaning."""
_BLOCK = 1024
"""Rows of similarities held at a time."""


@dataclass(frozen=True)
class Geometry:
    """Of n sentence vectors scaled to length 1. None where a measure does not exist."""

    alignment: float | None
    """Mean squared distance of positive pairs, in [0, 4]; the smaller, the closer they lie."""
    uniformity: float | None
    """Log of the mean over all pairs of exp(-2 squared distance), in [-8, 0]; 0 is one point."""
    effective_rank: float | None
    """Exponential of the entropy of the vectors' singular values as shares of their sum (Roy and
    Vetterli, 2007), in [1, hidden]; 1 is one direction."""
    mean_cosine: float | None
    """Of all pairs, in [-1, 1]; 1 is one direction, 0 none preferred."""

    def metrics(self, split: str) -> dict[str, float | None]:
        """By tracked name, e.g. ``dev.geometry.alignment``."""
        return {f"{split}.geometry.{f.name}": getattr(self, f.name) for f in fields(self)}


def measure(pairs: Pairs, encode: Encode) -> Geometry:
    """Geometry of the sentences of ``pairs``, in float64; draws nothing.

    Sentences with a zero vector, which has no direction, are left out. With vectors that are not
    finite, or fewer than two sentences, no measure exists; alignment does not for a task that is
    not of ``SCALE_TO_5``.
    """
    vectors = np.concatenate([encode(pairs.first), encode(pairs.second)]).astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)  # (2 * pairs, 1)
    whole = norms[:, 0] > 0
    if not np.isfinite(norms).all() or whole.sum() < 2:
        return Geometry(None, None, None, None)
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    alignment = None
    if pairs.name in SCALE_TO_5:
        first, second = np.split(vectors, 2)
        chosen = (pairs.gold >= POSITIVE) & np.logical_and(*np.split(whole, 2))
        if chosen.any():
            alignment = float(((first - second)[chosen] ** 2).sum(axis=1).mean())
    unit = vectors[whole]
    return Geometry(alignment, _uniformity(unit), _effective_rank(unit), _mean_cosine(unit))


def _uniformity(unit: np.ndarray) -> float:
    """Over the unordered pairs of two different rows of (n, hidden)."""
    total, n = 0.0, len(unit)
    for start in range(0, n, _BLOCK):
        # exp(-2 |x - y|^2) of unit vectors is exp(4 cos - 4).
        total += np.exp(4 * np.minimum(unit[start : start + _BLOCK] @ unit.T, 1) - 4).sum()
    return float(np.log((total - n) / (n * (n - 1))))  # a row with itself counts 1


def _effective_rank(unit: np.ndarray) -> float:
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(unit.T @ unit), 0))  # (hidden,)
    shares = singular[singular > 0] / singular.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _mean_cosine(unit: np.ndarray) -> float:
    """Over all pairs of two different rows: their sum is that of all pairs less n ones."""
    n, total = len(unit), unit.sum(axis=0)
    return float((total @ total - n) / (n * (n - 1)))
