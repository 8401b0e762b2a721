"""What the loop can train: for each method of a recipe, a model and its objective."""

from __future__ import annotations

from collections.abc import Callable

from scd_core.encoder import SentenceEncoder
from scd_core.learners import contrastive_tension, isbert, scd, simcse, skip_thought
from scd_core.learners.learner import Learner
from scd_core.recipe import Recipe
from scd_core.settings import MethodName

__all__ = ["BUILDERS", "Learner", "build"]

BUILDERS: dict[MethodName, Callable[[SentenceEncoder, Recipe], Learner]] = {
    "scd": scd.build,
    "simcse": simcse.build,
    "simcse-supervised": simcse.build_supervised,
    "ct": contrastive_tension.build,
    "is": isbert.build,
    "skip-thought": skip_thought.build,
}


def build(encoder: SentenceEncoder, recipe: Recipe) -> Learner:
    """The learner of ``recipe.method`` around ``encoder``; draws its weights from torch's stream.

    Raises:
        UnplacedDropoutError: a dropout of the encoder cannot take the recipe's rates.
        ValueError: an encoder that comes with a head, or a setting the method cannot take.
    """
    if encoder.head is not None:
        raise ValueError(
            f"model.name = {recipe.model.name!r} is an encoder with an n-gram head (IS-BERT); "
            "training starts from one without"
        )
    return BUILDERS[recipe.method](encoder, recipe)
