"""Spearman scores: pooling, ties, and what is said where no correlation exists."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from scd_core.evaluation.pairs import PairFile, Pairs, read_files
from scd_core.evaluation.sts import (
    Encode,
    Score,
    average,
    protocol_fingerprint,
    score_all,
    score_pairs,
)
from scd_core.evaluation.tasks import STS_TEST, StsTask


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _pairs(gold: Sequence[float], name: str = "toy", split: str = "test") -> Pairs:
    n = len(gold)
    first, second = [f"{name} a{i}" for i in range(n)], [f"{name} b{i}" for i in range(n)]
    return Pairs(name, split, first, second, np.array(gold, dtype=np.float64), n)


def _encoder(pairs: Pairs, cosines: Sequence[float]) -> Encode:
    """Vectors of various lengths whose cosine is the given one for each pair."""
    vectors = {}
    for i, cosine in enumerate(cosines):
        vectors[pairs.first[i]] = [1.0 + i, 0.0]
        vectors[pairs.second[i]] = [3 * cosine, 3 * (1 - cosine**2) ** 0.5]
    return lambda texts: np.array([vectors[text] for text in texts], dtype=np.float32)


def _hashed(texts: Sequence[str]) -> np.ndarray:
    """Different, repeatable vectors for different sentences."""
    return np.array(
        [np.random.default_rng(list(text.encode())).normal(size=8) for text in texts],
        dtype=np.float32,
    )


def test_pooled_is_not_the_mean_of_the_subsets(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\tb\t0\nc\td\t1\ne\tf\t2\n")
    (tmp_path / "y").write_text("g\th\t3\ni\tj\t4\nk\tl\t5\n")
    parts = [PairFile("x", 3, 3), PairFile("y", 3, 3)]
    year = read_files(tmp_path, parts, "year", "test")
    encode = _encoder(year, [0.7, 0.8, 0.9, 0.1, 0.2, 0.3])
    assert score_pairs(year, encode).value == pytest.approx(-54.29, abs=0.005)
    for part in parts:
        subset = read_files(tmp_path, [part], "part", "test")
        assert score_pairs(subset, encode).value == pytest.approx(100)


def test_ties_take_the_average_rank() -> None:
    pairs = _pairs([1, 1, 2, 3])
    score = score_pairs(pairs, _encoder(pairs, [0.1, 0.4, 0.2, 0.9]))
    assert score.value == pytest.approx(63.25, abs=0.005)


def test_only_the_order_of_gold_scores_counts() -> None:
    gold = np.array([0.3, 4, 2, 1, 5])
    for scale in (1, 20, -1):
        pairs = _pairs(list(scale * gold))
        value = score_pairs(pairs, _encoder(pairs, [0.1, 0.2, 0.5, 0.4, 0.9])).value
        assert value == pytest.approx(70 * np.sign(scale))


def test_the_name_of_a_score_says_split_metric_and_aggregation() -> None:
    assert Score("sts12", "test", 1.0, 3).key == "test.sts12.spearman_all"
    pairs = _pairs([1, 2, 3], name="sample", split="dev")
    score = score_pairs(pairs, _hashed)
    assert score.key == "dev.sample.spearman_all"
    assert (score.pairs, score.zero_vectors) == (3, 0)
    assert (score.metric, score.aggregation) == ("spearman", "all")


def test_average_is_of_unrounded_values_and_has_no_gaps() -> None:
    values = (60.004, 70.004, 80.004)
    scores = [Score("t", "test", value, 3) for value in values]
    assert average(scores) == pytest.approx(70.004, abs=1e-12)
    assert average([*scores, Score("t", "test", None, 3)]) is None
    assert average([]) is None
    assert average([Score("t", "test", 0.0, 3)]) == 0.0


class TestUndefined:
    pairs = _pairs([1, 2, 3, 4, 5])

    def test_constant_vector(self) -> None:
        score = score_pairs(self.pairs, lambda texts: np.full((len(texts), 384), 0.3, np.float32))
        assert score.value is None
        assert score.pairs == 5

    @pytest.mark.parametrize("seed", range(20))
    def test_constant_vector_up_to_rounding(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        constant = rng.normal(size=384)

        def encode(texts: Sequence[str]) -> np.ndarray:
            noise = 1 + 5e-7 * rng.normal(size=(len(texts), 384))
            return (constant * noise).astype(np.float32)

        assert score_pairs(self.pairs, encode).value is None

    @pytest.mark.parametrize("seed", range(20))
    def test_constant_cosine_that_is_not_1(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sides = rng.normal(size=(2, 384))

        def encode(texts: Sequence[str]) -> np.ndarray:
            rows = sides[[int(" b" in text) for text in texts]]
            return (rows * (1 + 5e-7 * rng.normal(size=rows.shape))).astype(np.float32)

        assert score_pairs(self.pairs, encode).value is None

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("side", ["first", "second"])
    def test_vector_that_is_not_finite(self, side: str, value: float) -> None:
        def encode(texts: Sequence[str]) -> np.ndarray:
            vectors = _hashed(texts)
            vectors[texts.index(getattr(self.pairs, side)[3]), 2] = value
            return vectors

        assert score_pairs(self.pairs, encode).value is None

    def test_equal_gold_or_no_pairs(self) -> None:
        assert score_pairs(_pairs([2, 2, 2]), _hashed).value is None
        assert score_pairs(_pairs([]), _hashed) == Score("toy", "test", None, 0)

    def test_one_undefined_task_leaves_the_others_alone(self) -> None:
        good, bad = _pairs([1, 2, 3], "good"), _pairs([1, 2, 3], "bad")

        def encode(texts: Sequence[str]) -> np.ndarray:
            vectors = _hashed(texts)
            vectors[[text.startswith("bad") for text in texts]] = np.nan
            return vectors

        scores = score_all([good, bad], encode)
        assert scores[0] == score_pairs(good, _hashed)
        assert scores[1].value is None
        assert average(scores) is None

    def test_nearly_collapsed_but_ranked_is_defined(self) -> None:
        cosines = 1 - np.array([5, 4, 3, 2, 1]) * 1e-5
        assert score_pairs(self.pairs, _encoder(self.pairs, list(cosines))).value == (
            pytest.approx(100)
        )


class TestZeroVectors:
    pairs = _pairs([1, 2, 3, 4])

    def test_cosine_is_0_and_the_vector_is_counted(self) -> None:
        encode = _encoder(self.pairs, [-0.5, 0.9, 0.3, 0.6])

        def with_zero(texts: Sequence[str]) -> np.ndarray:
            vectors = encode(texts)
            vectors[texts.index(self.pairs.second[1])] = 0
            return vectors

        score = score_pairs(self.pairs, with_zero)
        expected = _encoder(self.pairs, [-0.5, 0.0, 0.3, 0.6])
        assert score.value == pytest.approx(score_pairs(self.pairs, expected).value)
        assert score.value == pytest.approx(100)
        assert score.zero_vectors == 1

    def test_a_zero_vector_does_not_make_a_constant_encoder_defined(self) -> None:
        def encode(texts: Sequence[str]) -> np.ndarray:
            vectors = np.ones((len(texts), 4), np.float32)
            vectors[0] = 0
            return vectors

        score = score_pairs(self.pairs, encode)
        assert (score.value, score.zero_vectors) == (None, 1)

    def test_all_zero(self) -> None:
        score = score_pairs(self.pairs, lambda texts: np.zeros((len(texts), 4), np.float32))
        assert (score.value, score.zero_vectors) == (None, 8)


@pytest.mark.parametrize("shape", [(5, 4), (7, 4), (6,), (6, 4, 1), (6, 0)])
def test_an_encoder_that_returns_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"encode returned .* for 6 sentences; expected \(6, hid"):
        score_pairs(_pairs([1, 2, 3]), lambda _: np.ones(shape, np.float32))


def test_one_call_over_distinct_sentences_gives_what_single_tasks_give() -> None:
    calls: list[Sequence[str]] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        calls.append(texts)
        return _hashed(texts)

    one, two = _pairs([1, 2, 3, 4], "one"), _pairs([4, 2, 8], "two")
    shared = Pairs("three", "dev", one.first, [*two.second, "x"], one.gold, 4)
    scores = score_all([one, two, shared], encode)
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0])) == 15
    assert scores == [score_pairs(pairs, _hashed) for pairs in (one, two, shared)]
    assert len({score.value for score in scores}) == 3


def test_protocol_is_tasks_and_data_whatever_their_order() -> None:
    one, two = _pairs([1, 2, 3], "one"), _pairs([1, 2, 3], "two")
    base = protocol_fingerprint([one, two])
    assert len(base) == 12
    assert base == protocol_fingerprint([two, one])
    dev = Pairs("two", "dev", two.first, two.second, two.gold, 3)
    rescored = Pairs("two", "test", two.first, two.second, two.gold[::-1], 3)
    others = [protocol_fingerprint(p) for p in ([one], [one, dev], [one, rescored])]
    assert len({base, *others}) == 4


@pytest.mark.parametrize("task", STS_TEST, ids=lambda task: task.name)
def test_every_declared_task_is_one_correlation_over_all_its_pairs(task: StsTask) -> None:
    rng = np.random.default_rng(0)
    pairs = _pairs(list(rng.integers(0, 6, task.pairs)), task.name)
    order = np.argsort(np.argsort(pairs.gold + rng.normal(0, 2, task.pairs)))
    # Evenly spaced, so that no two cosines are closer than float32 vectors can tell apart.
    cosines = np.linspace(-0.9, 0.9, task.pairs)[order]
    score = score_pairs(pairs, _encoder(pairs, list(cosines)))
    assert score.pairs == task.pairs
    expected = 100 * _spearman_by_definition(cosines, pairs.gold)
    assert score.value == pytest.approx(expected, abs=1e-9)


def _spearman_by_definition(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation of ranks, a rank being the mean place among all, by counting."""

    def rank(values: np.ndarray) -> np.ndarray:
        ordered = np.sort(values)
        low = np.searchsorted(ordered, values, "left")
        return (low + np.searchsorted(ordered, values, "right")) / 2

    return float(np.corrcoef(rank(x), rank(y))[0, 1])
