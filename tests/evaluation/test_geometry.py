"""Alignment, uniformity and the measures of collapse, against double loops and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scd_core.evaluation.geometry import Geometry, measure
from scd_core.evaluation.pairs import Pairs
from scd_core.evaluation.vectors import Encode


def _pairs(gold: list[float], name: str = "stsb") -> Pairs:
    n = len(gold)
    first, second = [f"a{i}" for i in range(n)], [f"b{i}" for i in range(n)]
    return Pairs(name, "dev", first, second, np.array(gold), n)


def _encoder(pairs: Pairs, vectors: np.ndarray) -> Encode:
    """``vectors``: those of the first sentences, then those of the second."""
    row = {text: i for i, text in enumerate([*pairs.first, *pairs.second])}
    return lambda texts: vectors[[row[text] for text in texts]]


def test_against_a_double_loop() -> None:
    rng = np.random.default_rng(0)
    pairs = _pairs([float(g) for g in rng.uniform(0, 5, 700)])  # more than one block of rows
    vectors = (rng.normal(size=(1400, 12)) + 0.4).astype(np.float32)
    found = measure(pairs, _encoder(pairs, vectors))
    unit = [v / math.sqrt(float(v @ v)) for v in vectors.astype(np.float64)]
    distances = [
        float(((unit[i] - unit[700 + i]) ** 2).sum()) for i in range(700) if pairs.gold[i] >= 4
    ]
    assert found.alignment == pytest.approx(sum(distances) / len(distances), rel=1e-9)
    kernel = cosine = 0.0
    for i in range(1400):
        for j in range(i):
            kernel += math.exp(-2 * float(((unit[i] - unit[j]) ** 2).sum()))
            cosine += float(unit[i] @ unit[j])
    count = 1400 * 1399 / 2
    assert found.uniformity == pytest.approx(math.log(kernel / count), rel=1e-9)
    assert found.mean_cosine == pytest.approx(cosine / count, rel=1e-9)
    singular = np.linalg.svd(np.array(unit), compute_uv=False)
    shares = singular / singular.sum()
    expected = math.exp(-sum(float(p) * math.log(p) for p in shares))
    assert found.effective_rank == pytest.approx(expected, rel=1e-9)


def test_by_hand() -> None:
    """Two orthogonal directions, each twice, of any length: pairs at squared distance 0 and 2."""
    pairs = _pairs([4.0, 1.0])
    vectors = np.array([[2, 0], [3, 0], [0, 5], [0, 1]], dtype=np.float32)
    found = measure(pairs, _encoder(pairs, vectors))
    assert found.alignment == pytest.approx(2)
    assert found.uniformity == pytest.approx(math.log((2 + 4 * math.exp(-4)) / 6))
    assert found.effective_rank == pytest.approx(2)
    assert found.mean_cosine == pytest.approx(2 / 6)


def test_a_collapsed_encoder_shows() -> None:
    pairs = _pairs([5.0] * 30)
    found = measure(pairs, _encoder(pairs, np.full((60, 16), 0.3, np.float32)))
    assert found.alignment == pytest.approx(0, abs=1e-12)
    assert found.uniformity == pytest.approx(0, abs=1e-12)
    assert found.effective_rank == pytest.approx(1, abs=1e-6)
    assert found.mean_cosine == pytest.approx(1)


def test_zero_vectors_are_left_out_and_what_is_not_finite_has_no_geometry() -> None:
    pairs = _pairs([5.0, 5.0, 5.0])
    vectors = np.eye(6, dtype=np.float32)
    whole = measure(pairs, _encoder(pairs, vectors))
    assert whole.alignment == pytest.approx(2)
    vectors[0] = 0
    vectors[4] = vectors[1]
    found = measure(pairs, _encoder(pairs, vectors))
    assert found.alignment == pytest.approx(1)  # of the two pairs left: 0 and 2
    assert found.mean_cosine == pytest.approx(2 / 20)  # one equal pair among five vectors
    vectors[2, 2] = np.nan
    assert measure(pairs, _encoder(pairs, vectors)) == Geometry(None, None, None, None)
    assert measure(pairs, _encoder(pairs, np.zeros((6, 2)))) == Geometry(None, None, None, None)


def test_no_alignment_without_a_known_scale_or_positive_pairs() -> None:
    for pairs in (_pairs([5.0, 5.0], "pairs"), _pairs([3.9, 0.0])):
        found = measure(pairs, _encoder(pairs, np.eye(4, dtype=np.float32)))
        assert found.alignment is None
        assert found.uniformity == pytest.approx(-4)


def test_tracked_names() -> None:
    assert Geometry(0.1, -2.0, 30.0, None).metrics("dev") == {
        "dev.geometry.alignment": 0.1,
        "dev.geometry.uniformity": -2.0,
        "dev.geometry.effective_rank": 30.0,
        "dev.geometry.mean_cosine": None,
    }
