"""The SCD objective (Eq. 1 to 4), every printed and released variant a named setting; InfoNCE.

Axes: (batch, hidden) sentence vectors h, (batch, proj) projections p. Statistics, correlation and
losses are computed in fp32 (fp64 for fp64 inputs), whatever the precision of the model.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from scd_core.settings import Objective

# Added to the variance when a column is standardised, as BatchNorm does: a constant column becomes
# 0 and not NaN.
VARIANCE_EPSILON = 1e-5
# Rows of the printed correlation at a time: 8 MB each of its terms at a width of 4096.
PRINTED_ROWS = 512


class Terms(NamedTuple):
    """The loss and its parts, scalars. loss = self_weight * self_contrast + alpha * decorrelation;
    decorrelation = (+ or -) diagonal + lambda * off_diagonal."""

    loss: Tensor
    self_contrast: Tensor
    decorrelation: Tensor
    diagonal: Tensor
    off_diagonal: Tensor


def scd(h_a: Tensor, h_b: Tensor, p_a: Tensor, p_b: Tensor, settings: Objective) -> Terms:
    """Eq. 1: self_weight * L_S(h_a, h_b) + alpha * L_C(p_a, p_b).

    h_a, h_b: (batch, hidden); p_a, p_b: (batch, proj). Barlow Twins is this with self_weight 0.

    Raises:
        ValueError: fewer than two rows (no correlation), or shapes that differ between views.
    """
    if h_a.shape != h_b.shape or p_a.shape != p_b.shape or len(h_a) != len(p_a):
        shapes = [tuple(t.shape) for t in (h_a, h_b, p_a, p_b)]
        raise ValueError(f"the views differ in shape: {shapes}")
    if len(h_a) < 2:
        raise ValueError(f"a correlation over the batch needs at least 2 rows, found {len(h_a)}")
    with torch.autocast(h_a.device.type, enabled=False):
        h_a, h_b, p_a, p_b = (_wide(t) for t in (h_a, h_b, p_a, p_b))
        contrast = self_contrast(h_a, h_b, settings.temperature, settings.reduction)
        diagonal, off_diagonal = decorrelation_sums(p_a, p_b, settings.normaliser)
        sign = 1.0 if settings.diagonal_sign == "plus" else -1.0
        decorrelation = sign * diagonal + settings.lam * off_diagonal
        loss = settings.self_weight * contrast + settings.alpha * decorrelation
    return Terms(loss, contrast, decorrelation, diagonal, off_diagonal)


class ContrastTerms(NamedTuple):
    """InfoNCE, a scalar, and the share of rows whose own positive is the nearest."""

    loss: Tensor
    accuracy: Tensor


def info_nce(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, temperature: float = 0.05
) -> ContrastTerms:
    """SimCSE's Eq. 4, and with ``negatives`` its Eq. 5: mean over the batch of -log softmax.

    The candidates of a row are all positives and all negatives of the batch; its own positive is
    right. Similarity is the cosine divided by ``temperature``. All are (batch, hidden).

    Raises:
        ValueError: shapes that differ.
    """
    candidates = [positives] if negatives is None else [positives, negatives]
    if any(part.shape != anchors.shape for part in candidates):
        shapes = [tuple(part.shape) for part in (anchors, *candidates)]
        raise ValueError(f"anchors, positives and negatives differ in shape: {shapes}")
    with torch.autocast(anchors.device.type, enabled=False):
        unit = torch.nn.functional.normalize(_wide(torch.cat([anchors, *candidates])))
        logits = unit[: len(anchors)] @ unit[len(anchors) :].T / temperature
        own = torch.arange(len(anchors), device=logits.device)
        loss = torch.nn.functional.cross_entropy(logits, own)
    return ContrastTerms(loss, (logits.argmax(1) == own).float().mean())


def self_contrast(
    h_a: Tensor, h_b: Tensor, temperature: float = 1.0, reduction: Literal["mean", "sum"] = "mean"
) -> Tensor:
    """L_S, Eq. 2: cos(h_a_i, h_b_i) / temperature over the batch; minimising it parts the views.

    h_a, h_b: (batch, hidden). The sum is an earlier release's; with alpha times the batch size it
    gives the mean's gradient times the batch size (released-code row 1).
    """
    cosine = torch.nn.functional.cosine_similarity(h_a, h_b, dim=1) / temperature
    return cosine.mean() if reduction == "mean" else cosine.sum()


def standardise(p: Tensor) -> Tensor:
    """(batch, proj) with each column's mean removed and divided by its population deviation."""
    centred = p - p.mean(0)
    return centred * (centred.square().mean(0) + VARIANCE_EPSILON).rsqrt()


def decorrelation_sums(
    p_a: Tensor, p_b: Tensor, normaliser: Literal["standard", "printed"] = "standard"
) -> tuple[Tensor, Tensor]:
    """The two sums of Eq. 4 before sign and lambda: sum_j (1 - C_jj)^2, sum_{j, k != j} C_jk^2.

    p_a, p_b: (batch, proj). Both triangles count (released-code row 4). "standard" is the
    cross-correlation Z_A^T Z_B / batch of standardised columns (row 2); its off-diagonal sum needs
    no (proj, proj) matrix: ||Z_A^T Z_B||_F^2 = sum((Z_A Z_A^T) * (Z_B Z_B^T)). "printed" is Eq. 3:
    C_jk = sum_i a_ij b_ik / sqrt(sum_i a_ij^2 b_ik^2), and 0 where all those products are 0; it is
    made and used ``PRINTED_ROWS`` rows at a time, so memory does not grow with proj squared.
    """
    if normaliser == "standard":
        z_a, z_b = standardise(p_a), standardise(p_b)
        rows = len(z_a)
        diagonal = (z_a * z_b).mean(0)
        total = ((z_a @ z_a.T) * (z_b @ z_b.T)).sum() / rows**2
    else:
        # Backward makes each block again rather than keep it.
        blocks = [
            checkpoint(_printed_block, p_a, p_b, row, use_reentrant=False, preserve_rng_state=False)
            for row in range(0, p_a.shape[1], PRINTED_ROWS)
        ]
        diagonal = torch.cat([part for part, _ in blocks])
        total = torch.stack([part for _, part in blocks]).sum()
    return (1 - diagonal).square().sum(), total - diagonal.square().sum()


def _printed_block(p_a: Tensor, p_b: Tensor, row: int) -> tuple[Tensor, Tensor]:
    """Diagonal entries and sum of squares of C's rows from ``row`` on, PRINTED_ROWS of them."""
    a = p_a[:, row : row + PRINTED_ROWS]
    square = a.square().T @ p_b.square()
    correlation = (a.T @ p_b) / torch.where(square > 0, square, 1.0).sqrt()
    return correlation.diagonal(row), correlation.square().sum()


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
