"""Contrastive tension: a plain loop, known values, two encoders that part, which one is kept."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from scd_core.encoder import SentenceEncoder
from scd_core.learners import build
from scd_core.learners.contrastive_tension import NEGATIVES, contrastive_tension
from scd_core.recipe import Recipe, preset
from scd_core.settings import Optim, Views

GROUP = [[2, 5, 3], [2, 6, 7, 3], [2, 8, 3], [2, 9, 3], [2, 10, 5, 3], [2, 11, 3], [2, 12, 3]]
ROWS = [*GROUP, [2, 5, 5, 3], *reversed(GROUP), [2, 7, 3]]


def test_in_a_plain_loop() -> None:
    torch.manual_seed(0)
    anchors, candidates = torch.randn(3, 4), torch.randn(3, 1 + NEGATIVES, 4)
    losses = {True: [], False: []}  # type: dict[bool, list[float]]
    for i in range(3):
        for j in range(1 + NEGATIVES):
            dot = sum(float(anchors[i, k]) * float(candidates[i, j, k]) for k in range(4))
            probability = 1 / (1 + math.exp(-dot))
            losses[j == 0].append(-math.log(probability if j == 0 else 1 - probability))
    terms = contrastive_tension(anchors, candidates)
    assert float(terms.positive) == pytest.approx(sum(losses[True]) / 3, rel=1e-5)
    assert float(terms.negative) == pytest.approx(sum(losses[False]) / 21, rel=1e-5)
    assert float(terms.loss) == pytest.approx(sum(losses[True] + losses[False]) / 24, rel=1e-5)


def test_known_values() -> None:
    """No tension: log 2. All right by far: 0. One direction for all: 7 pairs of 8 are wrong."""
    zero = contrastive_tension(torch.zeros(2, 3), torch.zeros(2, 8, 3))
    assert float(zero.loss) == pytest.approx(math.log(2))
    candidates = torch.full((1, 8, 1), -40.0)
    candidates[:, 0] = 40
    assert float(contrastive_tension(torch.ones(1, 1), candidates).loss) < 1e-6
    same = contrastive_tension(torch.ones(1, 1), torch.full((1, 8, 1), 40.0))
    assert float(same.loss) == pytest.approx(40 * 7 / 8)


def recipe_of(batch: int) -> Recipe:
    return Recipe(method="ct", views=Views(0.0, 0.0), optim=Optim(batch_size=batch))


def test_pairs_of_a_batch_and_the_encoder_that_is_kept(tiny_model: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "mean")
    learner = build(encoder, recipe_of(16))
    anchors, candidates = learner.model(ROWS)
    alone = encoder(*encoder.pad([ROWS[8]]))
    torch.testing.assert_close(anchors[1:], alone, atol=1e-5, rtol=1e-4)  # a copy at first
    torch.testing.assert_close(candidates[1, 0], alone[0], atol=1e-5, rtol=1e-4)
    optimizer = torch.optim.SGD(learner.model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        learner(ROWS, "fp32").loss.backward()
        optimizer.step()
    anchors, candidates = learner.model(ROWS)
    assert not torch.allclose(anchors, candidates[:, 0], atol=1e-4)  # weights of their own
    torch.testing.assert_close(candidates.flatten(0, 1), encoder(*encoder.pad(ROWS)))


def test_a_batch_of_parts_of_groups_is_refused(tiny_models: dict[str, Path]) -> None:
    encoder = SentenceEncoder(tiny_models["bert"], "mean")
    with pytest.raises(ValueError, match=r"optim\.batch_size = 12 .* a multiple of 8"):
        build(encoder, recipe_of(12))


def test_preset() -> None:
    recipe = preset("ct-bert-paper")
    assert (recipe.model.pooling, recipe.optim.batch_size) == ("mean", 2 * (1 + NEGATIVES))
