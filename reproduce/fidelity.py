"""The fidelity table's recipes: what paper and released code do differently, one at a time.

Each row of that table is the recipe of a base preset with one setting changed (the last two change
several), trained with the same seeds on the same data; runs are found by the recipe's hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scd_core.recipe import Recipe, preset

BASES = ("scd-bert-paper", "scd-roberta-paper", "scd-bundled")
"""Presets that the differences are switched on, one for each encoder."""


@dataclass(frozen=True)
class Variant:
    """A recipe as a change of another."""

    id: str
    title: str
    settings: Mapping[str, float | str]
    """By dotted name, e.g. ``objective.temperature``."""
    bert: bool = False
    """The values are those of SCD-BERT: it says nothing of RoBERTa."""

    def of(self, base: Recipe) -> Recipe:
        """The changed recipe."""
        changed = base
        for name, value in self.settings.items():
            group, setting = name.split(".")
            settings = replace(getattr(changed, group), **{setting: value})
            changed = replace(changed, **{group: settings})
        return changed

    @property
    def flags(self) -> str:
        """As flags of ``python -m scd_core.train``."""
        return " ".join(f"--{k.replace('_', '-')} {v}" for k, v in self.settings.items())


ABLATIONS = (
    Variant("self-contrast", "L_S only", {"objective.alpha": 0.0}),
    Variant("decorrelation", "L_C only", {"objective.self_weight": 0.0}),
)
"""Table 3: one term of Eq. 1 alone."""

_PRINTED = (
    Variant("normaliser", "C normalised as printed in Eq. 3", {"objective.normaliser": "printed"}),
    Variant("diagonal-sign", "minus as printed in Eq. 4", {"objective.diagonal_sign": "minus"}),
)
_RELEASED = (
    Variant("temperature", "L_S divided by tau = 0.05", {"objective.temperature": 0.05}),
    Variant("alpha", "alpha 0.005225", {"objective.alpha": 0.005225}, bert=True),
    Variant("lambda", "lambda 0.012", {"objective.lam": 0.012}, bert=True),
    Variant("r_B", "r_B 15.5%", {"views.r_b": 0.155}, bert=True),
    Variant("precision", "16-bit precision (fp16)", {"optim.precision": "fp16"}),
    Variant("selection", "checkpoint by SICK-R dev", {"selection.metric": "sickr"}),
)
_EARLIER = (Variant("reduction", "L_S summed over the batch", {"objective.reduction": "sum"}),)


def variants(base: str) -> tuple[Variant, ...]:
    """The rows under a base: single settings, then those that change several.

    Rows 1 to 3, 10, 12 and 15 of the differences between paper and released code.

    Raises:
        ValueError: the base is none of ``BASES``.
    """
    if base not in BASES:
        raise ValueError(f"base = {base!r} has no fidelity recipes; choose one of {list(BASES)}")
    released = [v for v in _RELEASED if base != "scd-roberta-paper" or not v.bert]
    return (
        *singles(base),
        _together("printed", "Eq. 3 and 4 as printed", _PRINTED),
        _together("released", "everything as released", released),
    )


def singles(base: str) -> tuple[Variant, ...]:
    """Those of ``variants`` that change one setting."""
    every = (*_RELEASED, *_EARLIER, *_PRINTED)
    return tuple(v for v in every if base != "scd-roberta-paper" or not v.bert)


def base_recipes() -> set[str]:
    """Hashes of the runs of the bases and of their ablations."""
    bases = [preset(name) for name in BASES]
    recipes = [recipe for base in bases for recipe in (base, *(v.of(base) for v in ABLATIONS))]
    return {run_hash for recipe in recipes for run_hash in recipe.run_hashes}


def _together(name: str, title: str, parts: tuple[Variant, ...] | list[Variant]) -> Variant:
    return Variant(name, title, {k: v for part in parts for k, v in part.settings.items()})
