"""The grid: which values the four searched settings take, and which of their combinations run."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from scd_core.recipe import Recipe
from scd_core.settings import Objective, Views


def canonical(value: float) -> float:
    """The value at 12 significant digits, so that 0.3 and 3 * 0.1 are one grid value."""
    return float(f"{value:.12g}")


@dataclass(frozen=True, order=True)
class Point:
    """One setting of alpha, lambda, r_A and r_B (Eq. 1, 4 and section 2 of the paper)."""

    alpha: float
    lam: float
    r_a: float
    r_b: float

    def apply(self, recipe: Recipe) -> Recipe:
        """``recipe`` with the searched settings at this point.

        Raises:
            ValueError: a value that no recipe may have, by the setting's name.
        """
        return dataclasses.replace(
            recipe,
            views=dataclasses.replace(recipe.views, r_a=self.r_a, r_b=self.r_b),
            objective=dataclasses.replace(recipe.objective, alpha=self.alpha, lam=self.lam),
        )

    def symbols(self) -> dict[str, float]:
        """The values under the paper's symbols, the names that Optuna and MLflow know them by."""
        return {"alpha": self.alpha, "lambda": self.lam, "r_A": self.r_a, "r_B": self.r_b}

    def __str__(self) -> str:
        rates = f"r_A {100 * self.r_a:g}%, r_B {100 * self.r_b:g}%"
        return f"alpha {self.alpha:g}, lambda {self.lam:g}, {rates}"


def point_of(symbols: Mapping[str, float | str]) -> Point | None:
    """The inverse of ``Point.symbols``, also of values written as text; None where one lacks."""
    names = ("alpha", "lambda", "r_A", "r_B")
    if not all(name in symbols for name in names):
        return None
    return Point(*(canonical(float(symbols[name])) for name in names))


def without_point(recipe: Recipe) -> Recipe:
    """The recipe with the searched settings at their defaults: what all points of a grid share."""
    return Point(Objective.alpha, Objective.lam, Views.r_a, Views.r_b).apply(recipe)


@dataclass(frozen=True)
class Space:
    """Values of each searched setting; the grid is every combination with r_A < r_B.

    Values are made canonical, sorted and freed of repetitions, so that a grid is the same however
    it was written. It enumerates; it does not say which point is tried next.
    """

    alpha: tuple[float, ...]
    """alpha, weight of the decorrelation. The paper's coarse step is 0.1."""
    lam: tuple[float, ...]
    """lambda, weight of the off-diagonal sum. The paper's coarse values are 0.1, 0.01 and 0.001."""
    r_a: tuple[float, ...]
    """r_A, dropout rate of the low view, as a fraction. The paper's coarse step is 0.1."""
    r_b: tuple[float, ...]
    """r_B, dropout rate of the high view, as a fraction; pairs with r_A >= r_B are left out."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            if not values or not all(math.isfinite(value) for value in values):
                raise ValueError(
                    f"space.{field.name} = {values!r} is not possible: give at least one finite "
                    "number"
                )
            object.__setattr__(self, field.name, tuple(sorted(set(map(canonical, values)))))
        if min(self.r_a) >= max(self.r_b):
            raise ValueError(
                f"the space is empty: SCD needs r_A < r_B, and no value of space.r_a = {self.r_a} "
                f"is below one of space.r_b = {self.r_b}; lower r_a or raise r_b"
            )

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The grid in its fixed order: by alpha, then lambda, r_A and r_B, each ascending."""
        combinations = itertools.product(self.alpha, self.lam, self.r_a, self.r_b)
        return tuple(Point(*values) for values in combinations if values[2] < values[3])

    @cached_property
    def place(self) -> Mapping[Point, int]:
        """Where each point is in ``points``."""
        return {point: index for index, point in enumerate(self.points)}


def _steps(first: int, last: int) -> tuple[float, ...]:
    return tuple(tenths / 10 for tenths in range(first, last + 1))


COARSE = Space(alpha=_steps(1, 10), lam=(0.001, 0.01, 0.1), r_a=_steps(0, 4), r_b=_steps(1, 5))
"""The paper's coarse grid (section 3.1): 450 points.

The paper states the steps and not the ranges; these are chosen here. alpha starts at its first
step, because at 0 lambda has no effect and SCD is its own ablation "L_S only". The rates go from 0,
below both published optima, to 50%, twice the highest. The published optimum (alpha 0.005, r_A 5%,
r_B 15%) lies between the steps of this grid: the paper refines it afterwards.
"""

QUICK = Space(alpha=(0.1, 0.5), lam=(0.001, 0.01), r_a=(0.0, 0.1), r_b=(0.1, 0.2))
"""Twelve points of ``COARSE``, for minutes on a laptop."""
