"""The projector p: sentence vectors to the wide space in which features are decorrelated."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scd_core.objectives import VARIANCE_EPSILON
from scd_core.settings import Projector


class TwoViewBatchNorm(nn.Module):
    """BatchNorm of (2 * batch, width) over each half by itself, with one scale and shift."""

    def __init__(self, width: int) -> None:
        """Statistics are the batch's own, never running ones."""
        super().__init__()
        self.norm = nn.BatchNorm1d(width, eps=VARIANCE_EPSILON, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: view A's rows and then view B's."""
        return torch.cat([self.norm(half) for half in x.chunk(2)])


def build_projector(hidden: int, settings: Projector) -> nn.Sequential:
    """(2 * batch, hidden) -> (2 * batch, width): linear layers with BatchNorm and ReLU between.

    As released (released-code row 8): only the first layer has a bias; BatchNorm sees one view at a
    time. The last standardisation belongs to the correlation (``objectives.standardise``). The
    statistics are always the batch's own, since the projector is never used in evaluation.
    """
    layers: list[nn.Module] = [nn.Linear(hidden, settings.width, bias=True)]
    for _ in range(settings.layers - 1):
        layers += [
            TwoViewBatchNorm(settings.width),
            nn.ReLU(inplace=True),
            nn.Linear(settings.width, settings.width, bias=False),
        ]
    return nn.Sequential(*layers)
