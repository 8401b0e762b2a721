"""Verdicts against the definitions they state, by scipy's own tests and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_ind

from reproduce.aggregate import Summary
from reproduce.verdicts import NOTHING, Comparison, with_figure, with_row


def summary(*values: float) -> Summary:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), sd, len(values), 0)


def test_one_more_seed_is_within_19_times_of_20() -> None:
    """What the prediction interval promises: seeds of one distribution, 4000 times."""
    rng = np.random.default_rng(0)
    within = [
        with_figure(summary(*seeds[:3]), float(seeds[3]), True).verdict == "within"
        for seeds in 1000 * rng.normal(size=(4000, 4))  # spread far above the rounding
    ]
    assert np.mean(within) == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 4000))


def test_by_hand() -> None:
    """t(2) = 4.3027: 70 to 72 predicts 71 +- 4.3027 * sqrt(4 / 3) = 4.968, and 0.005."""
    seeds = summary(70.0, 71.0, 72.0)
    assert with_figure(seeds, 75.97, True) == Comparison(pytest.approx(-4.97), "within")
    assert with_figure(seeds, 75.98, True).verdict == "outside"
    assert with_figure(seeds, 66.02, True).verdict == "outside"


def test_one_seed_has_no_verdict_and_no_seed_must_agree_as_printed() -> None:
    assert with_figure(summary(71.0), 71.0, True).verdict == "one seed"
    assert with_figure(summary(71.0049), 71.0, False).verdict == "within"
    assert with_figure(summary(71.0051), 71.0, False).verdict == "outside"


@pytest.mark.parametrize(
    ("cell", "figure"),
    [(None, 71.0), (Summary(None, None, 3, 1), 71.0), (summary(71.0, 72.0), None)],
)
def test_what_is_missing_has_no_difference(cell: Summary | None, figure: float | None) -> None:
    assert with_figure(cell, figure, True) == NOTHING
    assert with_row(cell, summary(1.0, 2.0) if figure else None) == NOTHING


def test_rows_are_compared_as_welch_does() -> None:
    rng = np.random.default_rng(1)
    verdicts = []
    for _ in range(200):
        a, b = rng.normal(70, 0.3, 3), rng.normal(70.5, 0.6, 4)
        found = with_row(summary(*a), summary(*b))
        assert found.difference == pytest.approx(a.mean() - b.mean())
        p = ttest_ind(a, b, equal_var=False).pvalue
        assert found.verdict == ("within" if p >= 0.05 else "outside")
        verdicts.append(found.verdict)
    assert len(set(verdicts)) == 2
    assert with_row(summary(1.0), summary(1.0, 2.0)).verdict == "one seed"
    assert with_row(summary(1.0, 1.0), summary(2.0, 2.0)).verdict == "outside"
    assert with_row(summary(1.0, 1.0), summary(1.0, 1.0)).verdict == "within"
