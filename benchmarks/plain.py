"""The SCD step written plainly, as the released code takes it: what ``step.py`` compares with.

Both views padded, one pass each; the library's dropout; fp32; the whole correlation matrix; torch's
AdamW as it comes. It shares nothing with ``scd_core`` but the settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, cosine_similarity
from transformers import PreTrainedModel

from scd_core.recipe import Recipe


def projector(hidden: int, width: int, layers: int) -> nn.Sequential:
    """Linear layers with BatchNorm and ReLU between."""
    modules: list[nn.Module] = [nn.Linear(hidden, width)]
    for _ in range(layers - 1):
        modules += [nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width, bias=False)]
    return nn.Sequential(*modules)


@dataclass
class PlainStep:
    """One optimiser step on (batch, seq) token ids and mask."""

    model: PreTrainedModel
    projector: nn.Sequential
    recipe: Recipe

    def __post_init__(self) -> None:
        self.parameters = [*self.model.parameters(), *self.projector.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, self.recipe.optim.lr, weight_decay=0.0)

    def loss(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Eq. 1, both views encoded one after the other."""
        objective, views = self.recipe.objective, self.recipe.views
        h_a, p_a = self._view(ids, mask, views.r_a)
        h_b, p_b = self._view(ids, mask, views.r_b)
        z_a = batch_norm(p_a, None, None, training=True)
        z_b = batch_norm(p_b, None, None, training=True)
        correlation = z_a.T @ z_b / len(z_a)
        diagonal = correlation.diagonal()
        pull = (diagonal - 1).square().sum()
        spread = correlation.square().sum() - diagonal.square().sum()
        return cosine_similarity(h_a, h_b).mean() + objective.alpha * (
            pull + objective.lam * spread
        )

    def __call__(self, ids: Tensor, mask: Tensor) -> float:
        """Train on the batch; the loss before."""
        loss = self.loss(ids, mask)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.recipe.optim.clip_norm)
        self.optimizer.step()
        return loss.item()

    def _view(self, ids: Tensor, mask: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate
        vectors = self.model(ids, attention_mask=mask).last_hidden_state[:, 0]
        return vectors, self.projector(vectors)
