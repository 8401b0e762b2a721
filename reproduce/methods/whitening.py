"""BERT-whitening (Su et al. 2021, "Whitening Sentence Representations"), over any encoder.

Their Eq. 4 to 6 and Algorithm 1: with mean mu and covariance Sigma = U Lambda U^T of the fit
sentences' vectors, x becomes (x - mu) W, W = U Lambda^(-1/2); with ``dimensions`` k, the first k
columns of W. The published row is SimCSE's (its Appendix C): vectors of the first and the last
layer averaged (SBERT's own for SBERT-whitening), fitted on NLI. Fitted on each test set ("target")
it has 64.26 there on the average of Table 1, and 66.28 on NLI.

Deviations: of NLI, the distinct sentences of SimCSE's triplets are read, not those of all pairs.
Directions in which the fit sentences' vectors do not vary, but for rounding, are left out; divided
by their deviation they would be noise as large as everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reproduce.methods.base import Method, beneath, needed
from scd_core.corpus import Corpus
from scd_core.evaluation.vectors import Encode


class Transform(NamedTuple):
    """x to (x - mean) @ kernel."""

    mean: np.ndarray
    """(hidden,) float64."""
    kernel: np.ndarray
    """(hidden, dimensions) float64."""

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """vectors: (n, hidden). Returns (n, dimensions) float32."""
        return ((vectors - self.mean) @ self.kernel).astype(np.float32)


def whiten(vectors: np.ndarray, dimensions: int | None = None) -> Transform:
    """The transform that makes the covariance of ``vectors`` (n, hidden) the identity.

    The covariance is the population's (divided by n).

    Args:
        vectors: of the fit sentences.
        dimensions: directions of largest variance to keep; None keeps all that vary.

    Raises:
        ValueError: the vectors do not vary in that many directions.
    """
    wide = np.asarray(vectors, dtype=np.float64)
    mean = wide.mean(0)
    centred = wide - mean
    u, variances, _ = np.linalg.svd(centred.T @ centred / len(wide))
    # of float32 vectors: a deviation below this, of the largest, is rounding
    rounding = len(variances) * np.finfo(np.float32).eps
    rank = int((variances > variances[0] * rounding**2).sum())
    kept = rank if dimensions is None else dimensions
    if not 1 <= kept <= rank:
        raise ValueError(
            f"dimensions = {dimensions} is not possible: {len(wide)} vectors of {wide.shape[1]} "
            f"numbers vary in {rank} directions; choose 1 to {rank}, or fit on more sentences"
        )
    return Transform(mean, u[:, :kept] / np.sqrt(variances[:kept]))


@dataclass(frozen=True)
class Whitening:
    """Whitened vectors of another method, fitted on the corpus."""

    base: Method
    """For the published rows an ``Embedding`` with pooling first_last, or ``sbert``. One that is
    fitted is fitted on the same corpus."""
    dimensions: int | None = None
    """k of Algorithm 1; the paper also reports 256. None keeps all that vary."""
    name: str = "whitening"

    def fit(self, corpus: Corpus | None) -> Encode:
        """Whiten by the corpus's distinct sentences.

        Raises:
            ValueError: no corpus, or one whose vectors vary in too few directions.
        """
        encode = self.base.fit(corpus)
        sentences = list(dict.fromkeys(needed(self, corpus).sentences))
        transform = whiten(encode(sentences), self.dimensions)

        def whitened(texts: Sequence[str]) -> np.ndarray:
            return transform(encode(texts))

        return whitened

    def settings(self) -> dict[str, Any]:
        """Dimensions kept, and the settings of the method beneath."""
        return {**beneath(self.base), "dimensions": self.dimensions}
