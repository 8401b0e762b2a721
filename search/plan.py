"""What a search will do, known before it starts: its trials, their number and its identity."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from scd_core import places
from scd_core.inputs import DataInput
from scd_core.recipe import Recipe
from search.machine import Share
from search.pruning import Pruning
from search.space import Point, Space, without_point

Sampler = Literal["grid", "random", "tpe"]


@dataclass(frozen=True)
class Trial:
    """One run of the grid. Equal identities are the same run, in whichever search they occur."""

    index: int
    """Position in the grid; ties between scores go to the lowest."""
    point: Point
    recipe: Recipe
    identity: str
    """Recipe hash, seed and data fingerprint; the same in Ray, Optuna and MLflow."""


@dataclass(frozen=True)
class Budget:
    """When a search stops, and how it meets failures. No part of what the search is."""

    trials: int | None = None
    """Trials with a result, those of earlier commands and other searches included; None: all."""
    hours: float | None = None
    """Of this command; no trial starts after them, and those that run are finished."""
    retries: int = 1
    """Times that a failed trial is tried again in one command."""

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"--max-trials {self.trials} is not possible: give at least 1")
        if self.hours is not None and not self.hours > 0:
            raise ValueError(f"--max-hours {self.hours:g} is not possible: give more than 0")
        if self.retries < 0:
            raise ValueError(f"--retries {self.retries} is not possible: give at least 0")


@dataclass(frozen=True)
class Plan:
    """A search over a grid, completely described.

    Two plans with the same ``identity`` are the same search: the second resumes the first.
    """

    stage: str
    """Which grid, e.g. "coarse"."""
    recipe: Recipe
    """What every trial has in common; seed and the four searched settings in it are not used."""
    space: Space
    data_fingerprint: str
    """SHA-256 (hex) of weights, sentences and dev pairs."""
    metric: str
    """Name of the dev score that ranks trials, e.g. ``dev.stsb.spearman_all``. Larger is better."""
    steps: int
    """Training steps of each trial."""
    share: Share
    seeds: tuple[int, ...] = (0,)
    """Every point is one trial with each."""
    sampler: Sampler = "grid"
    """Which points of the grid are tried, and in which order."""
    pruning: Pruning = field(default_factory=Pruning)
    budget: Budget = field(default_factory=Budget)
    chosen_name: str | None = None
    preset: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Said on every MLflow run of the search."""
    data: tuple[DataInput, ...] = ()
    """The data sets that every trial reads."""
    command: str = ""
    """The command that runs and resumes it."""

    def __post_init__(self) -> None:
        name = self.chosen_name
        if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError(
                f"--name {name!r} is not possible: use letters, digits, '.', '_' and '-', it names "
                "a folder"
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(
                f"--seeds {' '.join(map(str, self.seeds))} is not possible: give different whole "
                "numbers from 0"
            )
        if self.sampler == "grid" and self.budget.trials is not None:
            raise ValueError(
                "--max-trials with --sampler grid would try one corner of the grid only; choose "
                "--sampler random or tpe"
            )

    @property
    def name(self) -> str:
        """Of the search, in MLflow, Optuna and on disk; made of preset and identity if not chosen.

        With the identity in it, a changed recipe, grid or corpus is another search by itself.
        """
        return "-".join(
            (self.stage, self.chosen_name)
            if self.chosen_name
            else filter(None, (self.stage, self.preset, self.identity[:8]))
        )

    @property
    def folder(self) -> Path:
        """Where the search keeps its files."""
        return places.searches() / self.name

    def folder_of(self, trial: Trial) -> Path:
        """Where a trial keeps its checkpoints and its best model; short and unique."""
        return self.folder / "trials" / trial.identity

    @cached_property
    def trials(self) -> Sequence[Trial]:
        """Every point with every seed: the points in grid order, each point's seeds together."""
        return _Trials(self)

    @property
    def size(self) -> int:
        """How many trials are to have a result."""
        return min(self.budget.trials or len(self.trials), len(self.trials))

    def find(self, point: Point | None, identity: str) -> Trial | None:
        """The trial at a point that has this identity."""
        place = self.space.place.get(point) if point else None
        if place is None:
            return None
        first = place * len(self.seeds)
        there = (self.trials[index] for index in range(first, first + len(self.seeds)))
        return next((trial for trial in there if trial.identity == identity), None)

    @cached_property
    def description(self) -> dict[str, Any]:
        """What makes this search this one, as JSON, for comparison and for people."""
        return {
            "stage": self.stage,
            "data_fingerprint": self.data_fingerprint,
            "recipe": without_point(self.recipe).hash,
            "metric": self.metric,
            "seeds": list(self.seeds),
            "sampler": self.sampler,
            "pruning": dataclasses.asdict(self.pruning),
            **{f"space.{name}": list(v) for name, v in dataclasses.asdict(self.space).items()},
        }

    @cached_property
    def identity(self) -> str:
        """Twelve hex digits over ``description``."""
        return _digest(self.description)

    @cached_property
    def base(self) -> str:
        """What all stages of a search have in common."""
        return base_of(self.recipe, self.data_fingerprint, self.metric)


class _Trials(Sequence[Trial]):
    """The trials of a plan, each made when it is first wanted: a fine grid has 10^5 of them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: dict[int, Trial] = {}
        plan.space.points[0].apply(plan.recipe)  # what no recipe may have is refused at once
        plan.space.points[-1].apply(plan.recipe)

    def __len__(self) -> int:
        return len(self._plan.space.points) * len(self._plan.seeds)

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index not in self._made:
            plan = self._plan
            place, which = divmod(index, len(plan.seeds))
            point, seed = plan.space.points[place], plan.seeds[which]
            recipe = dataclasses.replace(point.apply(plan.recipe), seed=seed)
            identity = f"{recipe.hash}-s{seed}-{plan.data_fingerprint[:8]}"
            self._made[index] = Trial(index, point, recipe, identity)
        return self._made[index]


def base_of(recipe: Recipe, data_fingerprint: str, metric: str) -> str:
    """Twelve hex digits over recipe, data and metric, without point and seed."""
    return _digest([without_point(recipe).hash, data_fingerprint, metric])


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
