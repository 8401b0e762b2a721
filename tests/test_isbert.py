"""IS-BERT: the estimator's closed form, plain loops, the head in evaluation and on disk."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from scd_core.encoder import SentenceEncoder
from scd_core.export import save_encoder
from scd_core.learners import build
from scd_core.learners.isbert import jensen_shannon, mutual_information
from scd_core.models import HEAD_FILE, model_fingerprint
from scd_core.ngrams import WINDOWS, NgramHead
from scd_core.pooling import saved_pooling
from scd_core.recipe import Recipe
from scd_core.settings import Views

RECIPE = Recipe(method="is", views=Views(0.0, 0.0))
ROWS = [[2, 5, 6, 7, 8, 3], [2, 9, 3], [2, 10, 11, 3]]


def test_the_best_scores_give_the_jensen_shannon_divergence() -> None:
    """At T = log(p / q) the estimate is 2 JSD(P, Q) - 2 log 2, and no other T gives more."""
    p = torch.tensor([[0.4, 0.1], [0.2, 0.3]], dtype=torch.float64)
    q = p.sum(1, keepdim=True) * p.sum(0, keepdim=True)
    middle = (p + q) / 2
    divergence = 0.5 * float((p * (p / middle).log()).sum() + (q * (q / middle).log()).sum())
    best = jensen_shannon((p / q).log(), p, q)
    assert -float(best.loss) == pytest.approx(2 * divergence - 2 * math.log(2), rel=1e-12)
    for i, j in itertools.product(range(2), range(2)):
        for change in (-0.1, 0.1):
            scores = (p / q).log()
            scores[i, j] += change
            assert jensen_shannon(scores, p, q).loss > best.loss
    nothing = jensen_shannon(torch.zeros(2, 2, dtype=torch.float64), p, q)
    assert float(nothing.loss) == pytest.approx(2 * math.log(2))


def test_mutual_information_in_a_plain_loop() -> None:
    torch.manual_seed(0)
    lengths, width = (4, 2, 3), 5
    features = [torch.randn(n, width) for n in lengths]
    local, mask = torch.zeros(3, 4, width), torch.zeros(3, 4, dtype=torch.long)
    for i, rows in enumerate(features):
        local[i, : len(rows)], mask[i, : len(rows)] = rows, 1
    own, others = [], []
    for i, j in itertools.product(range(3), range(3)):
        vector = sum(features[j]) / len(features[j])
        for token in features[i]:
            score = sum(float(a) * float(b) for a, b in zip(token, vector, strict=True))
            if i == j:
                own.append(-math.log(1 + math.exp(-score)))
            else:
                others.append(math.log(1 + math.exp(score)))
    terms = mutual_information(local, mask)
    assert float(terms.joint) == pytest.approx(sum(own) / len(own), rel=1e-5)
    assert float(terms.product) == pytest.approx(sum(others) / len(others), rel=1e-5)
    assert float(terms.loss) == pytest.approx(float(terms.product - terms.joint))


def test_convolutions_in_a_plain_loop_and_padding_is_nothing() -> None:
    torch.manual_seed(0)
    head = NgramHead(7)
    assert (head.width, [c.kernel_size[0] for c in head.convolutions]) == (6, list(WINDOWS))
    states, length = torch.randn(1, 6, 7), 4
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    with torch.no_grad():
        found, vector = head.local(states, mask)[0], head(states, mask)[0]
        for place in range(length):
            expected = []
            for window, convolution in zip(WINDOWS, head.convolutions, strict=True):
                for f in range(2):
                    value = convolution.bias[f].clone()
                    for offset in range(window):
                        token = place + offset - window // 2
                        if 0 <= token < length:
                            value += convolution.weight[f, :, offset] @ states[0, token]
                    expected.append(max(0.0, float(value)))
            np.testing.assert_allclose(found[place].numpy(), expected, atol=1e-5)
        assert not found[length:].any()
        torch.testing.assert_close(vector, found[:length].mean(0))


def test_the_head_is_in_evaluation_and_kept_on_disk(tiny_model: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "mean")
    plain = encoder.encode(["the cat", "a dog sat on the mat"])
    learner = build(encoder, RECIPE)
    local, mask = learner.model(ROWS)
    expected = (local.sum(1) / mask.sum(1, keepdim=True)).detach()
    torch.testing.assert_close(encoder(*encoder.pad(ROWS)), expected)
    found = encoder.encode(["the cat", "a dog sat on the mat"])
    assert found.shape == (2, 30)  # 3 windows of 32 // 3 filters
    assert plain.shape == (2, 32)
    save_encoder(encoder, tmp_path / "model")
    assert saved_pooling(tmp_path / "model") == "mean"
    again = SentenceEncoder(tmp_path / "model", "mean")
    np.testing.assert_allclose(again.encode(["the cat", "a dog sat on the mat"]), found, atol=1e-6)
    for pooling in ("cls", "first_last"):
        with pytest.raises(ValueError, match=f"pooling = '{pooling}' .* give 'mean', as saved"):
            SentenceEncoder(tmp_path / "model", pooling)  # type: ignore[arg-type]
    before = model_fingerprint(tmp_path / "model")
    (tmp_path / "model" / HEAD_FILE).unlink()
    assert model_fingerprint(tmp_path / "model") != before
    with pytest.raises(ValueError, match="n-gram head"):
        build(again, Recipe())


def test_sentence_transformers_does_not_open_it_without_the_head(
    tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    """It must not hand out other vectors than this project's."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceEncoder(tiny_models["bert"], "mean")
    build(encoder, RECIPE)
    save_encoder(encoder, tmp_path / "model")
    with pytest.raises(Exception, match=r"NgramHead|scd_core"):
        SentenceTransformer(str(tmp_path / "model"), device="cpu")
