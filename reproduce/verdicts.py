"""Whether a measured row agrees with a figure or with another row, given its spread over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scipy.stats import t

from reproduce.aggregate import Summary

Verdict = Literal["within", "outside", "one seed", ""]
LEVEL = 0.95
_HALF_DIGIT = 0.005 + 1e-9  # figures are printed with two decimals

RULE_FIGURE = (
    "Verdict: within, if the published figure could be one more seed of the measured row: it lies "
    "in the 95% prediction interval mean ± t(n - 1) sd sqrt(1 + 1/n), give or take its rounding; "
    "else outside. With n = 1 the spread is unknown (one seed). A row without seeds has no spread "
    "and must agree to the printed digits."
)
RULE_ROW = (
    "Verdict: within, if the difference to the first row of its block is no more than seeds make: "
    "0 lies in Welch's 95% interval of the difference of means; else outside. With n = 1 on either "
    "side the spread is unknown (one seed)."
)


@dataclass(frozen=True)
class Comparison:
    """A measured cell less what it is compared with."""

    difference: float | None
    """Points, unrounded; None where either is missing."""
    verdict: Verdict
    """Empty where there is no difference."""


NOTHING = Comparison(None, "")


def with_figure(cell: Summary | None, figure: float | None, seeded: bool) -> Comparison:
    """Compare with a published figure by ``RULE_FIGURE``.

    Args:
        cell: the measured cell; None where nothing was measured.
        figure: as printed, to two decimals.
        seeded: whether the row depends on a seed.
    """
    if cell is None or cell.mean is None or figure is None:
        return NOTHING
    difference = cell.mean - figure
    if not seeded:
        return Comparison(difference, _verdict(difference, _HALF_DIGIT))
    if cell.sd is None:
        return Comparison(difference, "one seed")
    width = _t(cell.n - 1) * cell.sd * math.sqrt(1 + 1 / cell.n)
    return Comparison(difference, _verdict(difference, width + _HALF_DIGIT))


def with_row(cell: Summary | None, other: Summary | None) -> Comparison:
    """Compare with another measured row by ``RULE_ROW``."""
    if cell is None or cell.mean is None or other is None or other.mean is None:
        return NOTHING
    difference = cell.mean - other.mean
    if cell.sd is None or other.sd is None:
        return Comparison(difference, "one seed")
    a, b = cell.sd**2 / cell.n, other.sd**2 / other.n
    if a + b == 0:
        return Comparison(difference, _verdict(difference, 0.0))
    freedom = (a + b) ** 2 / (a**2 / (cell.n - 1) + b**2 / (other.n - 1))
    return Comparison(difference, _verdict(difference, _t(freedom) * math.sqrt(a + b)))


def _verdict(difference: float, width: float) -> Verdict:
    return "within" if abs(difference) <= width else "outside"


def _t(freedom: float) -> float:
    return float(t.ppf((1 + LEVEL) / 2, freedom))
