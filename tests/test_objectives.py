"""The objective against plain loops, values worked by hand, and autograd's own check."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from scd_core import objectives
from scd_core.objectives import VARIANCE_EPSILON, decorrelation_sums, scd, self_contrast
from scd_core.settings import Objective

SETTINGS = [
    Objective(
        alpha=alpha,
        lam=0.7,
        self_weight=weight,
        temperature=temperature,
        reduction=reduction,
        normaliser=normaliser,
        diagonal_sign=sign,
    )
    for alpha, weight in [(0.3, 1.0), (0.3, 0.0), (0.0, 1.0), (2.0, 0.5)]
    for temperature, reduction, normaliser, sign in itertools.product(
        (1.0, 0.05), ("mean", "sum"), ("standard", "printed"), ("plus", "minus")
    )
]


def plain_scd(h_a: Tensor, h_b: Tensor, p_a: Tensor, p_b: Tensor, s: Objective) -> float:
    """Eq. 1 to 4 with nothing but loops and floats."""
    rows, columns = p_a.shape
    a, b = p_a.tolist(), p_b.tolist()
    contrast = 0.0
    for u, v in zip(h_a.tolist(), h_b.tolist(), strict=True):
        dot = sum(x * y for x, y in zip(u, v, strict=True))
        norms = math.sqrt(sum(x * x for x in u)) * math.sqrt(sum(y * y for y in v))
        contrast += dot / norms / s.temperature
    if s.reduction == "mean":
        contrast /= rows
    if s.normaliser == "standard":
        for view in (a, b):
            for j in range(columns):
                mean = sum(row[j] for row in view) / rows
                variance = sum((row[j] - mean) ** 2 for row in view) / rows
                for row in view:
                    row[j] = (row[j] - mean) / math.sqrt(variance + VARIANCE_EPSILON)
    diagonal = off_diagonal = 0.0
    for j in range(columns):
        for k in range(columns):
            entry = sum(a[i][j] * b[i][k] for i in range(rows))
            if s.normaliser == "standard":
                entry /= rows
            else:
                entry /= math.sqrt(sum(a[i][j] ** 2 * b[i][k] ** 2 for i in range(rows)))
            if j == k:
                diagonal += (1 - entry) ** 2
            else:
                off_diagonal += entry**2
    sign = 1 if s.diagonal_sign == "plus" else -1
    return s.self_weight * contrast + s.alpha * (sign * diagonal + s.lam * off_diagonal)


def views(rows: int = 6, hidden: int = 5, columns: int = 4) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    shapes = [(rows, hidden), (rows, hidden), (rows, columns), (rows, columns)]
    return tuple(torch.randn(s, generator=draw, dtype=torch.float64) for s in shapes)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equals_plain_loops(settings: Objective) -> None:
    inputs = views()
    assert scd(*inputs, settings).loss.item() == pytest.approx(
        plain_scd(*inputs, settings), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 100])
def test_the_printed_correlation_is_the_same_in_blocks(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Objective(normaliser="printed", lam=0.7, alpha=0.3)
    inputs = [x.requires_grad_() for x in views()]
    monkeypatch.setattr(objectives, "PRINTED_ROWS", rows)
    loss = scd(*inputs, settings).loss
    assert loss.item() == pytest.approx(plain_scd(*inputs, settings), rel=1e-9)
    assert torch.autograd.gradcheck(lambda *x: scd(*x, settings).loss, inputs)


def test_the_printed_correlation_keeps_no_block() -> None:
    """What autograd keeps for backward is of the order of the inputs, not of proj squared."""
    kept = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    p_a, p_b = (torch.randn(4, 2048, requires_grad=True) for _ in range(2))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        diagonal, off_diagonal = decorrelation_sums(p_a, p_b, "printed")
    assert max(kept) <= 4 * 2048
    (diagonal + off_diagonal).backward()
    assert p_a.grad is not None


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gradients(settings: Objective) -> None:
    inputs = [x.requires_grad_() for x in views(rows=4, hidden=3, columns=3)]
    assert torch.autograd.gradcheck(lambda *x: scd(*x, settings).loss, inputs)


ROWS = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (ROWS, ROWS, (0, 0)),
        (ROWS, 7 * ROWS + 3, (0, 0)),
        (ROWS, -ROWS, (8, 0)),
        (ROWS[:, [0, 0]], ROWS[:, [0, 0]], (0, 2)),
        (torch.stack([ROWS[:, 0], torch.full((4,), 5.0)], 1), None, (1, 0)),
    ],
    ids=["same", "affine", "opposite", "repeated column", "constant column"],
)
def test_values_by_hand(a: Tensor, b: Tensor | None, expected: tuple[float, float]) -> None:
    sums = decorrelation_sums(a, a if b is None else b)
    assert [s.item() for s in sums] == pytest.approx(expected, abs=1e-2)


def test_printed_correlation_by_hand() -> None:
    """Two rows: C_11 = (1*1 + 2*3) / sqrt(1*1 + 4*9), C_12 = (1*2 + 2*0) / sqrt(1*4 + 0)."""
    a, b = torch.tensor([[1.0, 0], [2, 0]]), torch.tensor([[1.0, 2], [3, 0]])
    diagonal, off_diagonal = decorrelation_sums(a, b, "printed")
    assert diagonal.item() == pytest.approx((1 - 7 / math.sqrt(37)) ** 2 + 1, rel=1e-6)
    assert off_diagonal.item() == pytest.approx(1.0)  # C_12 = 1, and C_21 has no product but 0


@pytest.mark.parametrize("normaliser", ["standard", "printed"])
def test_repeated_batch_is_the_same_loss(normaliser: str) -> None:
    """The convention is the mean: twice the batch, the same loss and parts (to the epsilon).

    Eq. 3 as printed is no mean: its C grows with the root of the rows, by its own definition.
    """
    settings = Objective(normaliser=normaliser)  # type: ignore[arg-type]
    once = views(rows=8)
    twice = [torch.cat([x, x]) for x in once]
    one, two = scd(*once, settings), scd(*twice, settings)
    assert two.self_contrast.item() == pytest.approx(one.self_contrast.item(), rel=1e-12)
    if normaliser == "standard":
        for name in one._fields:
            assert getattr(two, name).item() == pytest.approx(getattr(one, name).item(), rel=1e-4)
    else:
        assert two.off_diagonal.item() == pytest.approx(2 * one.off_diagonal.item(), rel=1e-9)


def test_sum_with_converted_weight_has_the_means_gradient() -> None:
    """Released-code row 1: alpha with the mean is batch * alpha with the sum, up to the scale."""
    inputs = [x.requires_grad_() for x in views(rows=8)]
    mean = scd(*inputs, Objective(alpha=0.005)).loss
    total = scd(*inputs, Objective(alpha=0.005 * 8, reduction="sum")).loss
    for g_mean, g_sum in zip(
        torch.autograd.grad(mean, inputs), torch.autograd.grad(total, inputs), strict=True
    ):
        torch.testing.assert_close(g_sum, 8 * g_mean, rtol=1e-9, atol=1e-12)


def test_temperature_divides_the_cosine() -> None:
    h_a, h_b, *_ = views()
    assert self_contrast(h_a, h_b, 0.05).item() == pytest.approx(
        20 * self_contrast(h_a, h_b).item()
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype: torch.dtype) -> None:
    """4096 equal columns: the off-diagonal sum, 4096 * 4095, is over the 16-bit limit of 65,504."""
    column = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=dtype)
    p = column.unsqueeze(1).expand(4, 4096)
    h = torch.ones(4, 8, dtype=dtype)
    with torch.autocast("cpu", dtype):
        terms = scd(h, h, p, p, Objective())
    assert terms.off_diagonal.item() == pytest.approx(16_773_120, rel=1e-3)
    assert math.isfinite(terms.loss.item())
    assert terms.loss.dtype == torch.float32


def test_wrong_shapes_are_refused() -> None:
    h_a, h_b, p_a, p_b = views()
    with pytest.raises(ValueError, match="at least 2 rows"):
        scd(h_a[:1], h_b[:1], p_a[:1], p_b[:1], Objective())
    with pytest.raises(ValueError, match="shape"):
        scd(h_a, h_b[:3], p_a, p_b, Objective())
