"""Skip-thought: plain loops over words and over the GRU's equations, log V, which neighbour."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scd_core.encoder import SentenceEncoder
from scd_core.learners import build
from scd_core.learners.skip_thought import Decoder, neighbours
from scd_core.recipe import Recipe
from scd_core.settings import Views

RECIPE = Recipe(method="skip-thought", views=Views(0.0, 0.0))
ROWS = [[2, 5, 6, 7, 8, 3], [2, 9, 3], [2, 10, 11, 3], [2, 12, 3], [2, 13, 5, 3], [2, 7, 6, 5, 3]]


def gru_by_hand(decoder: Decoder, vector: Tensor, words: Tensor) -> Tensor:
    """The GRU's equations, one word after another."""
    gru = decoder.gru
    state = torch.zeros(gru.hidden_size)
    written = []
    for word in words:
        given = gru.weight_ih_l0 @ torch.cat([word, vector]) + gru.bias_ih_l0
        kept = gru.weight_hh_l0 @ state + gru.bias_hh_l0
        (r_x, z_x, n_x), (r_h, z_h, n_h) = given.chunk(3), kept.chunk(3)
        reset, update = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        state = (1 - update) * torch.tanh(n_x + reset * n_h) + update * state
        written.append(decoder.to_word.weight @ state + decoder.to_word.bias)
    return torch.stack(written)


def test_the_loss_in_a_plain_loop(tiny_model: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "cls")
    learner = build(encoder, RECIPE)
    table = encoder.backbone.get_input_embeddings().weight
    expected = []
    with torch.no_grad():
        for place, name in ((0, "previous"), (2, "following")):
            decoder = learner.model.get_submodule(name)
            assert isinstance(decoder, Decoder)
            losses = []
            for item in (0, 3):
                row = ROWS[item + place]
                (vector,) = encoder(*encoder.pad([ROWS[item + 1]]))
                written = gru_by_hand(decoder, vector, table[row[:-1]])
                for step, target in enumerate(row[1:]):
                    scores = [float(written[step] @ table[word]) for word in range(len(table))]
                    total = math.log(sum(math.exp(score) for score in scores))
                    losses.append(total - scores[target])
            expected.append(sum(losses) / len(losses))
        terms = learner(ROWS, "fp32")
    assert float(terms.loss) == pytest.approx(sum(expected), rel=1e-4)
    assert [float(t) for t in list(terms)[1:]] == pytest.approx(expected, rel=1e-4)


def test_no_knowledge_of_words_costs_log_v() -> None:
    words = torch.tensor([1, 5, 2])
    flat = torch.zeros(3, 50)
    terms = neighbours(flat, words, flat[:2], words[:2])
    assert float(terms.loss) == pytest.approx(2 * math.log(50))
