"""The commands that measure what a row lacks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from reproduce.aggregate import Group
from reproduce.layouts import Layout
from reproduce.published import OVER_ENCODER, PublishedRow
from scd_core.recipe import Recipe
from scd_core.settings import Precision

if TYPE_CHECKING:  # importing MLflow takes seconds
    from scd_core.run_info import RunInfo

SEEDS = (0, 1, 2)
"""Seeds that a trained row is measured with."""
RUN_ID = "RUN_ID"
"""Stands in a command for the run id that the training before it prints."""
_SCORED_BY_TRAINING = ("table1", "table3", "fidelity", "figure2")
"""Tables whose scores a training carries itself; transfer takes an evaluation of it."""

_READ = ("corpus", "dev")
"""Of a recipe's data: what a training reads."""


@dataclass(frozen=True)
class Wanted:
    """The training behind a row."""

    recipe: Recipe
    flags: str
    """Of ``python -m scd_core.train``, e.g. ``--preset scd-bert-paper``."""
    content: str = ""
    """Fingerprint of the data that it reads; empty where any will do."""

    def like(self, group: Group) -> Wanted:
        """With the precision and the data of runs that it is to stand beside."""
        recipe, flags = as_measured(self.recipe, group), self.flags
        if recipe.optim.precision != self.recipe.optim.precision:
            flags += f" --optim.precision {recipe.optim.precision}"
        for name in _READ:
            value, before = getattr(recipe.data, name), getattr(self.recipe.data, name)
            if value != before:
                flags += f" --{name} {shown_place(value)}"
        return Wanted(recipe, flags, group.setting.content)


def as_measured(recipe: Recipe, group: Group) -> Recipe:
    """A recipe with the precision, where it leaves that to the machine, and the data of runs."""
    params = group.latest.params
    data = recipe.data
    corpus, dev = params.get("data.corpus", data.corpus), params.get("data.dev", data.dev)
    recipe = replace(recipe, data=replace(data, corpus=corpus, dev=dev))
    precision = params.get("optim.precision")
    return recipe.in_precision(cast(Precision, precision)) if precision else recipe


def shown_place(place: str) -> str:
    """For a command: a file as it is named from here; what is no file's path stays as it is."""
    return shlex.quote(os.path.relpath(place) if Path(place).is_absolute() else place)


class Trainings:
    """The finished trainings of a store: what they lack is only to be evaluated."""

    def __init__(self, runs: Iterable[RunInfo], layout: Layout) -> None:
        """``layout``: the table that is to be filled."""
        self._layout = layout
        self._runs: dict[tuple[str | None, ...], RunInfo] = {}
        for run in sorted(runs, key=lambda run: (run.start_time, run.run_id)):
            if run.tags.get("scd.kind") == "train" and run.status == "FINISHED":
                tags = [run.tags.get(f"scd.{name}") for name in ("model", "recipe_hash", "seed")]
                read = [run.params.get(f"data.{name}") for name in _READ]
                self._runs[*tags, *read] = run
                self._runs[*tags, run.tags.get("scd.data_fingerprint")] = run

    def fill(self, row: PublishedRow, group: Group | None, wanted: Wanted | None) -> Iterator[str]:
        """Commands in their order; none where nothing is missing, or no command measures it.

        Args:
            row: what is to be measured.
            group: what was measured of it.
            wanted: the training behind the row, where it has one.
        """
        if wanted:
            for seed in SEEDS:
                if seed not in (group.seeds if group else ()):
                    yield from self._train(wanted, seed)
        elif row.scores and row.method == "embedding" and group is None:
            yield f"python -m scd_core.evaluate {row.model} --pooling {row.pooling} --track"
        elif row.method == "glove" and group is None:
            where = f"--table {self._layout.name.removeprefix('table')} --backbone bundled"
            yield f"python -m reproduce.runs {where} --methods glove --glove FILE"
        elif self._layout.name == "table1" and row.method in OVER_ENCODER:
            wanted_seeds = SEEDS if row.method == "flow" else ()
            if group is None or set(wanted_seeds) - set(group.seeds):
                where = f"--table 1 --backbone {row.model}"
                yield f"python -m reproduce.runs {where} --methods {row.method}"

    def _train(self, wanted: Wanted, seed: int) -> Iterator[str]:
        recipe = wanted.recipe
        named = tuple(getattr(recipe.data, name) for name in _READ)
        read = (wanted.content,) if wanted.content else named
        keys = ((recipe.model.name, name, str(seed), *read) for name in sorted(recipe.run_hashes))
        run = next((self._runs[key] for key in keys if key in self._runs), None)
        if run is None:
            yield f"python -m scd_core.train {wanted.flags} --seed {seed}"
        scored = self._layout.name in _SCORED_BY_TRAINING
        if run is not None or not scored:
            tasks = "" if scored else " --tasks transfer"
            yield f"python -m scd_core.evaluate {run.run_id if run else RUN_ID}{tasks} --track"
