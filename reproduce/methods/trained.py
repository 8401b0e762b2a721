"""The trained methods: whatever ``scd_core.learners`` builds, on the one training loop.

SCD, SimCSE (unsupervised and supervised), CT, IS-BERT and Skip-thought; each is described, with its
equations and what differs from its paper, in its module of ``scd_core.learners``. SCD with L_S only
(alpha 0) and with L_C only (self_weight 0) are recipes of SCD.
"""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import Any

from scd_core import places
from scd_core.corpus import Corpus
from scd_core.device import default_device
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.vectors import Encode
from scd_core.inputs import prepare
from scd_core.recipe import Recipe
from scd_core.run_folder import model_path, read_result, sole_user
from scd_core.training import train


@dataclass(frozen=True)
class Trained:
    """A recipe's best encoder by its dev score."""

    recipe: Recipe

    @property
    def name(self) -> str:
        """The recipe's method."""
        return self.recipe.method

    def fit(self, corpus: Corpus | None = None) -> Encode:
        """Train in the run's own folder below ``places.runs()``, or open it where it is finished.

        Writes nothing to MLflow: ``python -m scd_core.train`` does that, in the same folder.

        Args:
            corpus: in place of the one that the recipe names. For supervised SimCSE, triplets flat
                (``triplets.load_triplets``).

        Raises:
            ValueError: as ``prepare`` and ``train`` do, or no dev score was defined.
        """
        inputs = prepare(self.recipe)
        if corpus is not None:
            inputs = dataclasses.replace(inputs, corpus=corpus)
        folder = places.runs() / inputs.identity.key
        with sole_user(folder), contextlib.closing(train(inputs, folder)) as records:
            for _ in records:
                pass
        result = read_result(folder)
        if result is None or result.best is None:
            raise ValueError(f"{folder}: no dev score was defined, so there is no best encoder")
        encoder = SentenceEncoder(model_path(folder), self.recipe.model.pooling)
        return encoder.to(default_device()).encode

    def settings(self) -> dict[str, Any]:
        """Every setting of the recipe under the paper's symbols, its method as ``method``."""
        return self.recipe.symbols()
