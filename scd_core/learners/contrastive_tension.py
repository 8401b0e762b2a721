"""CT (Carlsson et al. 2021, "Semantic Re-tuning with Contrastive Tension").

Two copies of the encoder, f_1 and f_2, with weights of their own: vectors of one sentence shall
have a large dot product, those of two different ones a small one. Their section 3, for each pair:
-log sigmoid(f_1(s) . f_2(s)) where it is one sentence and -log(1 - sigmoid(f_1(s) . f_2(s'))) where
it is two; 7 pairs of two to each pair of one. f_2 is kept.

Deviations: AdamW with linear decay and clipping, as the loop has it, in place of RMSProp with a
rate that falls in steps, from 1e-5 to 2e-6 after 2,000; the mean over pairs in place of their sum;
a batch's rows are groups of a sentence and its 7 negatives, so that in an epoch each sentence takes
part once, as one or the other (the authors' code draws both sentences of a pair of two anew).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from scd_core.encoder import SentenceEncoder
from scd_core.learners.learner import Learner
from scd_core.recipe import Recipe
from scd_core.two_view import set_rate

NEGATIVES = 7
"""Pairs of different sentences to each pair of one sentence."""


class TensionTerms(NamedTuple):
    """The mean loss over all pairs, and over those of one and those of two sentences; scalars."""

    loss: Tensor
    positive: Tensor
    negative: Tensor


def build(encoder: SentenceEncoder, recipe: Recipe) -> Learner:
    """CT around ``encoder``, which is f_2.

    Raises:
        ValueError: a batch that is no whole number of groups.
    """
    group, size = NEGATIVES + 1, recipe.optim.batch_size
    if size % group:
        raise ValueError(
            f"optim.batch_size = {size} is not possible: contrastive tension takes a sentence and "
            f"its {NEGATIVES} negatives together; give a multiple of {group}, such as 16"
        )
    set_rate(encoder.backbone, recipe.views.r_a)
    return Learner(TwoEncoders(encoder), contrastive_tension, two_views=False)


def contrastive_tension(anchors: Tensor, candidates: Tensor) -> TensionTerms:
    """Binary cross-entropy of dot products; the first candidate of an anchor is its own sentence.

    anchors: (groups, hidden) by f_1; candidates: (groups, 1 + negatives, hidden) by f_2.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        dots = (candidates.float() @ anchors.float().unsqueeze(2)).squeeze(2)
        same = torch.zeros_like(dots)
        same[:, 0] = 1
        losses = binary_cross_entropy_with_logits(dots, same, reduction="none")
    return TensionTerms(losses.mean(), losses[:, 0].mean(), losses[:, 1:].mean())


class TwoEncoders(nn.Module):
    """Token ids of groups of 1 + ``NEGATIVES`` sentences to f_1 of the first and f_2 of all."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """f_2 is ``encoder``; f_1 starts as a copy of it."""
        super().__init__()
        self.encoder, self.other = encoder, copy.deepcopy(encoder)

    def forward(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """rows: token ids, special tokens included, not padded, group after group."""
        group = NEGATIVES + 1
        anchors = self.other(*self.other.pad(rows[::group]))
        candidates = self.encoder(*self.encoder.pad(rows))
        return anchors, candidates.unflatten(0, (-1, group))
