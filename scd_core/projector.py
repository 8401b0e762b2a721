"""The projector p: sentence vectors to the wide space in which features are decorrelated."""

from __future__ import annotations

from torch import nn

from scd_core.objectives import VARIANCE_EPSILON
from scd_core.recipe import Projector


def build_projector(hidden: int, settings: Projector) -> nn.Sequential:
    """(batch, hidden) -> (batch, width): linear layers with BatchNorm and ReLU between.

    As released (released-code row 8): only the first layer has a bias; BatchNorm sees one view at a
    time. The last standardisation belongs to the correlation (``objectives.standardise``). The
    statistics are always the batch's own, since the projector is never used in evaluation.
    """
    layers: list[nn.Module] = [nn.Linear(hidden, settings.width, bias=True)]
    for _ in range(settings.layers - 1):
        layers += [
            nn.BatchNorm1d(settings.width, eps=VARIANCE_EPSILON, track_running_stats=False),
            nn.ReLU(inplace=True),
            nn.Linear(settings.width, settings.width, bias=False),
        ]
    return nn.Sequential(*layers)
