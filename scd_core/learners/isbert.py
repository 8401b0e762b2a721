"""IS-BERT (Zhang et al. 2020, "An Unsupervised Sentence Embedding Method by Mutual Information
Maximization").

The mutual information of a sentence's vector (global) with the n-gram features of its tokens
(local), by the Jensen-Shannon estimator, their Eq. 3:
I = E_P[-softplus(-T)] - E_{P x P~}[softplus(T)], with tokens of the other sentences of the batch as
P~. Features are ReLU convolutions of windows 1, 3 and 5 over BERT's last layer; the sentence vector
is their mean (``ngrams``), in evaluation too.

T is the dot product of local and global features and the expectations are means over all pairs of
the batch, as in the authors' code. Deviations: the optimiser is the loop's, without warm-up and
weight decay; of NLI, the preset reads the distinct sentences of SimCSE's triplets, not those of all
pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from scd_core.encoder import SentenceEncoder
from scd_core.learners.learner import Learner
from scd_core.ngrams import NgramHead, sentence_mean
from scd_core.recipe import Recipe
from scd_core.two_view import set_rate


class InformationTerms(NamedTuple):
    """Minus the estimate of the mutual information, and its two expectations; scalars, in nats."""

    loss: Tensor
    joint: Tensor
    product: Tensor


def build(encoder: SentenceEncoder, recipe: Recipe) -> Learner:
    """IS-BERT around ``encoder``, which gets the n-gram head; the pooling plays no part."""
    set_rate(encoder.backbone, recipe.views.r_a)
    encoder.head = NgramHead(encoder.backbone.config.hidden_size).to(encoder.device)
    return Learner(LocalGlobal(encoder), mutual_information, two_views=False)


def jensen_shannon(scores: Tensor, joint: Tensor, product: Tensor) -> InformationTerms:
    """The estimator for scores T of pairs.

    scores, joint, product: of one shape; joint and product are the pairs' weights under P and under
    P x P~, each summing to 1.
    """
    on_joint = (joint * -softplus(-scores)).sum()
    on_product = (product * softplus(scores)).sum()
    return InformationTerms(on_product - on_joint, on_joint, on_product)


def mutual_information(local: Tensor, mask: Tensor) -> InformationTerms:
    """Of the sentences' vectors and their own tokens, against tokens of the others.

    local: (batch, seq, width) features, 0 at padding; mask: (batch, seq), 1 at tokens.
    """
    with torch.autocast(local.device.type, enabled=False):
        local = local.float()
        tokens = local[mask.bool()]
        scores = tokens @ sentence_mean(local, mask).T
        owner = torch.arange(len(mask), device=mask.device).unsqueeze(1).expand_as(mask)
        sentences = torch.arange(len(mask), device=mask.device)
        own = (owner[mask.bool()].unsqueeze(1) == sentences).to(scores.dtype)
        return jensen_shannon(scores, own / own.sum(), (1 - own) / (1 - own).sum())


class LocalGlobal(nn.Module):
    """Token ids of a batch to the local features of its tokens, with their mask."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """The head belongs to the encoder."""
        super().__init__()
        self.encoder = encoder

    def forward(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """rows: token ids, special tokens included, not padded."""
        ids, mask = self.encoder.pad(rows)
        states = self.encoder.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        assert self.encoder.head is not None
        return self.encoder.head.local(states, mask), mask
