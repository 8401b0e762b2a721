"""What a search will do, known before it starts: its trials, identity and share of a machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from scd_core import places
from scd_core.inputs import DataInput
from scd_core.recipe import Recipe
from search.space import Point, Space, without_point

_TRIAL_BYTES = 2 << 30  # one CPU trial of a small encoder with its optimizer, rounded up


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
class Share:
    """What the trials of a search may use at the same time."""

    concurrent: int
    """Trials side by side."""
    cpus: float
    """CPUs, and so threads, of each trial."""
    gpus: float
    """GPUs of each trial; fractions share one."""


@dataclass(frozen=True)
class Plan:
    """A search over a grid, completely described.

    Two plans with the same ``identity`` are the same search: the second resumes the first.
    """

    stage: str
    """Which grid: "coarse"."""
    recipe: Recipe
    """What every trial has in common; the four searched settings in it are not used."""
    space: Space
    data_fingerprint: str
    """SHA-256 (hex) of weights, sentences and dev pairs."""
    metric: str
    """Name of the dev score that ranks trials, e.g. ``dev.stsb.spearman_all``. Larger is better."""
    steps: int
    """Training steps of each trial."""
    share: Share
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

    @property
    def name(self) -> str:
        """Of the search, in MLflow, Optuna and on disk; made of preset and identity if not chosen.

        With the identity in it, a changed recipe, grid or corpus is another search by itself.
        """
        made = "-".join(filter(None, (self.stage, self.preset, self.identity[:8])))
        return self.chosen_name or made

    @property
    def folder(self) -> Path:
        """Where the search keeps its files."""
        return places.searches() / self.name

    def folder_of(self, trial: Trial) -> Path:
        """Where a trial keeps its checkpoints and its best model; short and unique."""
        return self.folder / "trials" / trial.identity

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The grid as runs, in the order of ``Space.points``.

        Raises:
            ValueError: a point that no recipe may have.
        """
        recipes = [point.apply(self.recipe) for point in self.space.points]
        return tuple(
            Trial(index, point, recipe, self._identity_of(recipe))
            for index, (point, recipe) in enumerate(zip(self.space.points, recipes, strict=True))
        )

    @cached_property
    def description(self) -> dict[str, Any]:
        """What makes this search this one, as JSON, for comparison and for people."""
        return {
            "stage": self.stage,
            "data_fingerprint": self.data_fingerprint,
            "recipe": without_point(self.recipe).hash,
            "seed": self.recipe.seed,
            **{f"space.{name}": list(v) for name, v in dataclasses.asdict(self.space).items()},
        }

    @cached_property
    def identity(self) -> str:
        """Twelve hex digits over ``description``."""
        text = json.dumps(self.description, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _identity_of(self, recipe: Recipe) -> str:
        return f"{recipe.hash}-s{recipe.seed}-{self.data_fingerprint[:8]}"


def cpu_count() -> int:
    """CPUs this process may use: its affinity, and its container's quota where there is one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        limit = int(quota) // int(period)
    except (OSError, ValueError):  # no such container, or "max"
        return allowed or 1
    return max(1, min(allowed or 1, limit))


def free_bytes() -> int | None:
    """Memory that is free for trials, in bytes; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def share_out(
    points: int,
    cpus: int,
    gpus: int,
    free: int | None,
    concurrent: int | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
) -> Share:
    """Divide a machine among trials; what is given is taken, the rest follows.

    With a GPU, a trial has one and the GPUs say how many run at a time. Without, one trial a CPU
    runs, as far as memory allows: two trials with a thread each finish sooner than one with two.

    Args:
        points: Trials there are; more at a time are not planned.
        free: Memory in bytes, of which a CPU trial is planned 2 GiB; None for no limit.

    Raises:
        ValueError: a trial is to have more than the machine, or less than nothing.
    """
    each_gpu = gpus_per_trial if gpus_per_trial is not None else (1.0 if gpus else 0.0)
    for flag, value, there in (
        ("--cpus-per-trial", cpus_per_trial, cpus),
        ("--gpus-per-trial", gpus_per_trial, gpus),
    ):
        if value is not None and not 0 <= value <= there:
            raise ValueError(f"{flag} {value:g} is not possible: this machine has {there}")
    if cpus_per_trial is not None and cpus_per_trial <= 0:
        raise ValueError(f"--cpus-per-trial {cpus_per_trial:g} is not possible: give at least 1")
    if concurrent is not None and concurrent < 1:
        raise ValueError(f"--concurrent {concurrent} is not possible: give at least 1")
    room = [points, int(cpus // (cpus_per_trial or 1))]
    if each_gpu:
        room.append(int(gpus // each_gpu))
    elif free is not None:
        room.append(free // _TRIAL_BYTES)
    side_by_side = concurrent or max(1, min(room))
    each_cpu = cpus_per_trial or float(max(1, cpus // side_by_side))
    return Share(side_by_side, each_cpu, each_gpu)
