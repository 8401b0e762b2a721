"""SCD: two views at two dropout rates, self-contrast and decorrelation (Eq. 1 to 4)."""

from __future__ import annotations

from functools import partial

from scd_core.encoder import SentenceEncoder
from scd_core.learners.learner import Learner
from scd_core.objectives import scd
from scd_core.projector import build_projector
from scd_core.recipe import Recipe
from scd_core.two_view import set_rates
from scd_core.two_view_model import TwoViewModel


def build(encoder: SentenceEncoder, recipe: Recipe) -> Learner:
    """SCD of the recipe; the projector's weights are drawn from torch's stream."""
    set_rates(encoder.backbone, recipe.views.r_a, recipe.views.r_b)
    projector = build_projector(encoder.backbone.config.hidden_size, recipe.projector)
    model = TwoViewModel(encoder, projector)
    return Learner(model, partial(scd, settings=recipe.objective), two_views=True)
