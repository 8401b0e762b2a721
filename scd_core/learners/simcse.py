"""SimCSE (Gao et al. 2021, "SimCSE: Simple Contrastive Learning of Sentence Embeddings").

Unsupervised, their Eq. 4: a sentence encoded twice under the standard dropout is its own positive,
the others of the batch are negatives. The vector in training is tanh(W h + b) of the recipe's
pooling h, [CLS] in the published run; that layer is left out in evaluation, as published.

Supervised, their Eq. 5: premise, entailment and contradiction of NLI; a premise's own entailment is
right among all entailments and all contradictions of the batch. Deviation: the published models
keep the layer in evaluation; here it is left out too, since what is kept of a run is an encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from scd_core.encoder import SentenceEncoder
from scd_core.learners.learner import Learner
from scd_core.objectives import info_nce
from scd_core.recipe import Recipe
from scd_core.two_view import set_rate, set_rates


def build(encoder: SentenceEncoder, recipe: Recipe) -> Learner:
    """Unsupervised SimCSE; the layer's weights are drawn from torch's stream."""
    set_rates(encoder.backbone, recipe.views.r_a, recipe.views.r_b)
    objective = partial(info_nce, temperature=recipe.objective.temperature)
    return Learner(TwoPasses(encoder), objective, two_views=True)


def build_supervised(encoder: SentenceEncoder, recipe: Recipe) -> Learner:
    """Supervised SimCSE; the layer's weights are drawn from torch's stream."""
    set_rate(encoder.backbone, recipe.views.r_a)
    objective = partial(info_nce, temperature=recipe.objective.temperature)
    return Learner(Triplets(encoder), objective, two_views=False)


def head_of(encoder: SentenceEncoder) -> nn.Sequential:
    """The layer of the training only: (batch, hidden) to the same, as BERT's pooler starts out."""
    config = encoder.backbone.config
    linear = nn.Linear(config.hidden_size, config.hidden_size)
    nn.init.normal_(linear.weight, std=config.initializer_range)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


class TwoPasses(nn.Module):
    """Token ids of a batch to two vectors a sentence, (batch, hidden) each."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """The encoder keeps its state; the head is new."""
        super().__init__()
        self.encoder, self.head = encoder, head_of(encoder)

    def forward(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """rows: token ids, special tokens included, not padded."""
        a, b = self.head(self.encoder.two_views(rows)).chunk(2)
        return a, b


class Triplets(nn.Module):
    """Token ids of triplets, one after another, to their three vectors, (batch, hidden) each."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """The encoder keeps its state; the head is new."""
        super().__init__()
        self.encoder, self.head = encoder, head_of(encoder)

    def forward(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """rows: token ids, special tokens included, not padded; 3 * batch of them."""
        vectors = self.head(self.encoder(*self.encoder.pad(rows)))
        return vectors[0::3], vectors[1::3], vectors[2::3]
