"""Stock vectors, GloVe averages and whitening, against plain loops and defining properties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reproduce.methods.base import Method, record, target
from reproduce.methods.embedding import Embedding, encoder, sbert
from reproduce.methods.glove import Glove
from reproduce.methods.whitening import Whitening, whiten
from scd_core.corpus import Corpus
from scd_core.data import DataError
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.pairs import Pairs
from scd_core.export import save_encoder
from scd_core.pooling import Pooling
from tests.conftest import WORDS

TEXTS = ["the cat sat", "a dog ran on the road", "fast red cat", "blue mat"]


def corpus_of(count: int, seed: int = 0) -> Corpus:
    draw = np.random.default_rng(seed)
    lines = [" ".join(draw.choice(WORDS, draw.integers(2, 12))) for _ in range(count)]
    return Corpus("toy", lines, 0)


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last"])
def test_embedding_is_the_encoder_and_is_recorded(tiny_model: Path, pooling: Pooling) -> None:
    method: Method = encoder(str(tiny_model), pooling)
    expected = SentenceEncoder(tiny_model, pooling).encode(TEXTS)
    np.testing.assert_array_equal(method.fit(None)(TEXTS), expected)
    told = record(method, None)
    assert (told["method"], told["pooling"]) == ("embedding", pooling)
    assert not [key for key in told if key.startswith("fit.")]


def test_sbert_takes_the_pooling_that_its_folder_states(tiny_model: Path, tmp_path: Path) -> None:
    saved = SentenceEncoder(tiny_model, "mean")
    save_encoder(saved, tmp_path / "sbert")
    method = sbert(str(tmp_path / "sbert"))
    assert (method.name, method.pooling) == ("sbert", "mean")
    np.testing.assert_array_equal(method.fit()(TEXTS), saved.encode(TEXTS))
    with pytest.raises(ValueError, match="does not state its pooling"):
        sbert(str(tiny_model))


GLOVE = "the 1 2 3\n, 0 0 1\ncat 4 0 -2\nDog 1 1 1\ndog 9 9 9\nn't 2 2 2\n. . . 5 5 5\nthe 7 7 7\n"


def test_glove_average_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(GLOVE, encoding="utf-8")
    encode = Glove(path).fit()
    sentences = ["the cat", "The cat, unheardof", "Dog DOG", "zebra", "", "n't cat"]
    expected = [
        [2.5, 1.0, 0.5],  # the first of equal words
        [5 / 3, 2 / 3, 2 / 3],  # "cat," in its parts; the unknown word is skipped, not counted
        [5, 5, 5],  # as it stands before lower case
        [0, 0, 0],
        [0, 0, 0],
        [3, 1, 0],  # a token with a sign in it that is known as it stands
    ]
    np.testing.assert_allclose(encode(sentences), expected, rtol=1e-6)
    again = Glove(path).fit()(sentences)  # from the cache
    np.testing.assert_array_equal(again, encode(sentences))
    header = tmp_path / "header.txt"
    header.write_text("8 3\n" + GLOVE, encoding="utf-8")
    np.testing.assert_array_equal(Glove(header).fit()(sentences), again)
    assert Glove(header).settings() != Glove(path).settings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [("the 1 2 3\ncat 4 0\n", "line 2"), ("the 1 2 3\ncat 4 0 x\n", "lines 1 to 2"), ("", "no w")],
)
def test_damaged_vectors_are_refused_and_leave_no_cache(
    tmp_path: Path, own_home: Path, text: str, problem: str
) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=problem):
        Glove(path).fit()
    assert not list((own_home / "cache" / "glove").glob("*"))


def test_vectors_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"the 1 2\n\xff\xfe 1 2\n")
    with pytest.raises(DataError, match=r"vectors\.txt is not UTF-8"):
        Glove(path).fit()


def test_absent_vectors_name_the_file_to_get(tmp_path: Path) -> None:
    method = Glove(tmp_path / "none.txt")
    for call in (method.fit, method.settings):
        with pytest.raises(DataError, match=r"none\.txt do not exist.*glove\.840B\.300d"):
            call()


def correlated(rows: int = 500, width: int = 6) -> np.ndarray:
    draw = np.random.default_rng(0)
    mixed = draw.normal(size=(rows, width)) @ draw.normal(size=(width, width))
    return np.asarray(mixed + draw.normal(size=width) * 3, dtype=np.float32)


@pytest.mark.parametrize("dimensions", [None, 6, 3])
def test_whitened_covariance_is_the_identity(dimensions: int | None) -> None:
    vectors = correlated()
    found = whiten(vectors, dimensions)(vectors).astype(np.float64)
    kept = dimensions or 6
    np.testing.assert_allclose(found.mean(0), np.zeros(kept), atol=1e-5)
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(kept), atol=1e-4)


def test_whitening_in_a_plain_loop() -> None:
    """Principal axes one at a time, by power iteration with deflation; axes have no sign."""
    vectors = correlated(rows=60, width=3).astype(np.float64)
    n, width = vectors.shape
    mean = [sum(vectors[i, j] for i in range(n)) / n for j in range(width)]
    sigma = np.zeros((width, width))
    for i in range(n):
        for j in range(width):
            for k in range(width):
                sigma[j, k] += (vectors[i, j] - mean[j]) * (vectors[i, k] - mean[k]) / n
    expected = np.zeros((n, width))
    for axis in range(width):
        direction = np.ones(width)
        for _ in range(5000):
            direction = sigma @ direction
            direction /= np.linalg.norm(direction)
        variance = direction @ sigma @ direction
        sigma -= variance * np.outer(direction, direction)
        expected[:, axis] = [(row - mean) @ direction / variance**0.5 for row in vectors]
    found = whiten(vectors)(vectors)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-3)


def test_directions_without_variance_are_left_out() -> None:
    few = correlated()[:4]
    whitened = whiten(few)(few)
    np.testing.assert_array_equal(whitened, whiten(few, 3)(few))
    np.testing.assert_allclose(whitened.T @ whitened / 4, np.eye(3), atol=1e-4)
    for k in (0, 4):
        with pytest.raises(ValueError, match=rf"dimensions = {k} .* 3 directions; choose 1 to 3"):
            whiten(few, k)
    with pytest.raises(ValueError, match="vary in 0 directions"):
        whiten(np.ones((4, 3)))


def test_small_directions_are_kept() -> None:
    """A deviation of a thousandth of the largest is no rounding; one of a ten-millionth is."""
    draw = np.random.default_rng(0).standard_normal((400, 64)).astype(np.float32)
    scales = np.repeat(np.array([10, 1, 0.01, 1e-6], dtype=np.float32), 16)
    whitened = whiten(draw * scales)(draw * scales)
    assert whitened.shape == (400, 48)
    np.testing.assert_allclose(whitened.T @ whitened / 400, np.eye(48), atol=1e-3)


def test_whitening_an_encoder_on_target_sentences(tiny_model: Path) -> None:
    base = Embedding(tiny_model, "first_last")
    half = corpus_of(120).sentences
    pairs = Pairs("toy", "test", half[:60], half[60:], np.arange(60.0), 60)
    fit_on = target([pairs])
    assert fit_on.sentences == list(dict.fromkeys(half))
    method: Method = Whitening(base, dimensions=8)
    encode = method.fit(fit_on)
    found = encode(fit_on.sentences).astype(np.float64)
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(8), atol=2e-3)
    told = record(method, fit_on)
    assert told["fit.name"] == "target (toy test)"
    assert told["fit.fingerprint"] == fit_on.fingerprint
    assert (told["method"], told["base.method"]) == ("whitening", "embedding")
    assert (told["base.pooling"], told["dimensions"]) == ("first_last", 8)
    with pytest.raises(ValueError, match="whitening is fitted on sentences"):
        method.fit(None)
