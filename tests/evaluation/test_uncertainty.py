"""The bootstrap against scipy's and against closed forms; Holm against its definition."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, bootstrap, spearmanr

from scd_core.evaluation.items import load_items, save_items
from scd_core.evaluation.uncertainty import (
    Judged,
    Ranked,
    difference,
    holm,
    interval,
    judged_difference,
    resampled,
)


def _rated(n: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and gold scores with ties in both."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 11, n) / 2
    return np.round(gold / 5 + noise * rng.normal(size=n), 2), gold


def test_weighted_ranks_are_those_of_the_items_written_out() -> None:
    cosines, gold = _rated(60, 0.3)
    rng = np.random.default_rng(1)
    drawn = rng.integers(60, size=(20, 60))
    weights = np.stack([np.bincount(row, minlength=60) for row in drawn]).astype(float)
    expected = [100 * spearmanr(cosines[row], gold[row]).statistic for row in drawn]
    np.testing.assert_allclose(Ranked(cosines, gold).scores(weights), expected, rtol=1e-10)
    right = cosines > 0.5
    np.testing.assert_allclose(Judged(right).scores(weights), 100 * right[drawn].mean(axis=1))


def test_interval_is_scipys() -> None:
    cosines, gold = _rated(300, 0.3)
    found = interval(Ranked(cosines, gold))
    expected = bootstrap(
        (cosines, gold),
        lambda x, y: 100 * spearmanr(x, y).statistic,
        paired=True,
        vectorized=False,
        n_resamples=3000,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    assert found is not None
    width = expected.high - expected.low
    assert found.low == pytest.approx(expected.low, abs=0.06 * width)
    assert found.high == pytest.approx(expected.high, abs=0.06 * width)


def test_interval_of_an_accuracy_is_the_binomials() -> None:
    found = interval(Judged(np.arange(400) < 300))
    assert found is not None
    low, high = binom.ppf([0.025, 0.975], 400, 0.75) / 4
    assert found.low == pytest.approx(low, abs=0.5)
    assert found.high == pytest.approx(high, abs=0.5)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    """300 samples of a population whose accuracy is 70: within 4 standard errors of 95%."""
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        found = interval(Judged(rng.random(80) < 0.7))
        assert found is not None
        covered += found.low <= 70 <= found.high
    assert covered / 300 == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 300))


def test_the_same_every_time() -> None:
    cosines, gold = _rated(100, 0.3)
    assert interval(Ranked(cosines, gold)) == interval(Ranked(cosines, gold))


def test_paired_difference() -> None:
    """Nearly equal encoders differ by little with certainty, which two intervals would not show."""
    right = np.random.default_rng(0).random(1000) < 0.8
    better = right.copy()
    better[np.flatnonzero(~right)[:20]] = True
    found = difference(Judged(better), Judged(right))
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert 0.9 < found.interval.low < 2 < found.interval.high < 3.1
    assert found.p == pytest.approx(2 / 4001)
    first, second = interval(Judged(better)), interval(Judged(right))
    assert first is not None
    assert second is not None
    assert first.low < second.high
    cosines, gold = _rated(300, 0.3)
    worse, _ = _rated(300, 0.6)
    lower = difference(Ranked(worse, gold), Ranked(cosines, gold))
    assert lower is not None
    assert lower.value == pytest.approx(
        100 * (spearmanr(worse, gold).statistic - spearmanr(cosines, gold).statistic)
    )
    assert lower.interval.high < 0
    same = difference(Ranked(cosines, gold), Ranked(2 * cosines, gold))
    assert same is not None
    assert (same.value, same.p) == (0.0, 1.0)


def test_two_equal_encoders_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(7)
    ps = []
    for _ in range(200):
        a, b = (Judged(rng.random(200) < 0.7) for _ in range(2))
        found = difference(a, b)
        assert found is not None
        ps.append(found.p)
    assert np.mean(np.array(ps) <= 0.05) == pytest.approx(0.05, abs=4 * math.sqrt(0.0475 / 200))


def test_nothing_where_a_resample_has_no_score() -> None:
    cosines = np.zeros(3)
    cosines[0] = 1
    ranked = Ranked(cosines, np.arange(3.0))
    assert interval(ranked) is None
    assert difference(ranked, ranked) is None
    with pytest.raises(ValueError, match="3 and 4 items"):
        difference(ranked, Judged(np.ones(4)))


def test_holm() -> None:
    """Worked by hand: 0.01 x 4, 0.013 x 3 raised to 0.04, 0.03 x 2 and 0.04 raised to 0.06."""
    assert holm([0.03, 0.01, 0.04, 0.013]) == pytest.approx([0.06, 0.04, 0.06, 0.04])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_kept_items_give_the_same_scores(tmp_path: Path) -> None:
    cosines, gold = _rated(40, 0.3)
    kept = {
        "test.b.accuracy_x-y": Judged(cosines > 0.5),
        "test.a.spearman_all": Ranked(cosines, gold),
    }
    save_items(kept, tmp_path / "items.safetensors")
    found = load_items(tmp_path / "items.safetensors")
    assert set(found) == set(kept)
    for key, items in kept.items():
        np.testing.assert_array_equal(resampled(found[key], key), resampled(items, key))


def test_streams_draw_apart_and_one_stream_draws_together() -> None:
    """Two tasks of one length: with one stream their draws would be the same."""
    right = np.arange(200) < 120
    first, second = resampled(Judged(right), "mr"), resampled(Judged(right), "cr")
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(len(first))
    np.testing.assert_array_equal(first, resampled(Judged(right), "mr"))


def test_the_difference_of_a_mean_over_seeds() -> None:
    """Two seeds right on halves that overlap: the mean's resamples against a plain loop."""
    one, two, other = np.arange(100) < 60, np.arange(100) > 30, np.arange(100) < 40
    mean = (resampled(Judged(one), "t") + resampled(Judged(two), "t")) / 2
    found = judged_difference(64.5 - 40, mean - resampled(Judged(other), "t"))
    share = (one.astype(float) + two) / 2 - other
    rng = np.random.default_rng(9)
    expected = [100 * share[rng.integers(100, size=100)].mean() for _ in range(20_000)]
    assert found is not None
    assert found.interval.low == pytest.approx(np.quantile(expected, 0.025), abs=0.7)
    assert found.interval.high == pytest.approx(np.quantile(expected, 0.975), abs=0.7)
    assert found.p == pytest.approx(2 / 4001)
