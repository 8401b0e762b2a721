"""The flags that the commands of all stages share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from scd_core.recipe import Recipe
from search.plan import Sampler
from search.pruning import Pruning


@dataclass(frozen=True)
class Options:
    """The flags of every stage beside its grid and the recipe."""

    preset: str | None = None
    """"paper" (SCD-BERT), "quick" (minutes on two CPU cores), or any recipe preset. Default: paper
    with a GPU, else quick."""
    recipe: Path | None = None
    """This recipe file (TOML) instead of the preset's recipe; flags override it."""
    name: str | None = None
    """Of the search, the same for all its stages. Default: made of the preset and a hash of recipe,
    grid and data."""
    sampler: Sampler = "grid"
    """"grid" runs every point; "random" and "tpe" (tree-structured Parzen estimator) draw points of
    the same grid, each once, as many as --max-trials."""
    max_trials: int | None = None
    """Trials with a result, in all commands together. Default for random and tpe: 60, quick 8."""
    max_hours: float | None = None
    """Begin no trial after so many hours of this command; the same command goes on."""
    seeds: tuple[int, ...] | None = None
    """Run every point once with each; the ranking is by their mean. Default: --seed."""
    retries: int = 1
    """Times that this command tries a failed trial again."""
    pruning: Pruning = field(default_factory=Pruning)
    concurrent: int | None = None
    """Trials at the same time. Default: as GPUs, or CPUs and memory, allow."""
    cpus_per_trial: float | None = None
    """CPUs, and threads, of a trial. Default: an equal share."""
    gpus_per_trial: float | None = None
    """GPUs of a trial; 0.5 lets two share one. Default: 1 where there is one."""
    address: str | None = None
    """Of a running Ray cluster ("auto" or HOST:PORT) that trains instead of this machine."""
    confirm: int = 0
    """Afterwards train the winner on so many fresh seeds, to see how optimistic its score was."""
    dry_run: bool = False
    """Print the plan with its forecast and stop."""


Flags = Annotated[Options, tyro.conf.arg(name="")]
Settings = Annotated[Recipe, tyro.conf.arg(name="")]
