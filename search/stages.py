"""The grids after the coarse one: what each starts from and how far around it each looks.

The paper (section 3.1) names two: coarse, with steps of 0.1 for alpha, 10% for the rates and
magnitudes for lambda, and fine, with steps of 0.01 and 1%. Its optima (alpha 0.005, lambda 0.013,
r_A 5%, r_B 15%; for RoBERTa alpha 0.0033, lambda 0.028, r_A 6.5%, r_B 24%) are on neither, so a
finer stage must have existed: "refine" is this project's, with steps of 0.001 and 0.5%, and can be
repeated at greater depth.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from scd_core.run_info import RunInfo
from scd_core.tracking import Tracking
from search.space import Point, Space, point_of


@dataclass(frozen=True)
class Steps:
    """Distances between neighbours of a grid."""

    alpha: float
    lam: float
    rate: float
    """Of r_A and of r_B, as a fraction."""


@dataclass(frozen=True)
class Around:
    """The grid around the last stage's winner. The paper states steps, and no ranges."""

    alpha_reach: int
    """Steps of alpha below and above the winner; alpha stays above 0, but for a winner at 0."""
    lam_reach: int
    """Steps of lambda below and above the winner; lambda stays above 0, but for a winner at 0."""
    rate_reach: int
    """Steps of r_A and of r_B below and above the winner's; only r_A < r_B is kept."""
    alpha_step: float | None = None
    """Default: 0.01 in the fine stage (the paper's), then a tenth of the stage before."""
    lam_step: float | None = None
    """Default: a tenth of the winner's magnitude in the fine stage, then a tenth of the stage
    before."""
    rate_step: float | None = None
    """Default: 0.01 in the fine stage (the paper's), then half of the stage before."""

    def __post_init__(self) -> None:
        for name in ("alpha_reach", "lam_reach", "rate_reach"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"around.{name} = {value} is not possible: give at least 0")
        for name in ("alpha_step", "lam_step", "rate_step"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"around.{name} = {value:g} is not possible: give more than 0")

    def steps(self, default: Steps) -> Steps:
        """The steps in use.

        Raises:
            ValueError: neither ``lam_step`` nor ``default`` has one of lambda.
        """
        lam = self.lam_step or default.lam
        if not lam and self.lam_reach:
            raise ValueError(
                f"around.lam_step = {self.lam_step} is not possible where the winner's lambda is "
                "0, which has no magnitude to take a tenth of: give the step (--around.lam-step "
                "0.001), or keep lambda at 0 (--around.lam-reach 0)"
            )
        return Steps(self.alpha_step or default.alpha, lam, self.rate_step or default.rate)

    def space(self, winner: Point, steps: Steps) -> Space:
        """The grid around ``winner``, which is one of its points."""
        return Space(
            alpha=ladder(winner.alpha, steps.alpha, self.alpha_reach, lambda v: v > 0),
            lam=ladder(winner.lam, steps.lam, self.lam_reach, lambda v: v > 0),
            r_a=ladder(winner.r_a, steps.rate, self.rate_reach, lambda v: 0 <= v < 1),
            r_b=ladder(winner.r_b, steps.rate, self.rate_reach, lambda v: 0 <= v < 1),
        )


# Up to the neighbours on the grid before, and without them: those have been tried.
FINE = Around(alpha_reach=9, lam_reach=9, rate_reach=9)
REFINE = Around(alpha_reach=9, lam_reach=9, rate_reach=1)


def ladder(
    centre: float, step: float, reach: int, allowed: Callable[[float], bool]
) -> tuple[float, ...]:
    """``centre``, and ``reach`` steps to each side as far as allowed, in decimal arithmetic.

    Decimal, since 0.1 + 2 * 0.01 as floats is another number than 0.12 written down.
    """
    exact = (Decimal(repr(centre)) + k * Decimal(repr(step)) for k in range(-reach, reach + 1))
    return tuple(value for value in map(float, exact) if value == centre or allowed(value))


@dataclass(frozen=True)
class Winner:
    """What a stage starts from."""

    point: Point
    search: str
    """Name of the search that it won."""
    steps: Steps | None
    """Of that search's grid; None for the coarse one."""

    def finer(self) -> Steps:
        """The next stage's steps, where none are asked for; a lambda of 0 has none (0)."""
        if self.steps is None:
            lam = self.point.lam
            tenth = Decimal(1).scaleb(math.floor(math.log10(lam)) - 1) if lam else 0
            return Steps(alpha=0.01, lam=float(tenth), rate=0.01)
        return Steps(
            alpha=float(Decimal(repr(self.steps.alpha)) / 10),
            lam=float(Decimal(repr(self.steps.lam)) / 10),
            rate=float(Decimal(repr(self.steps.rate)) / 2),
        )


def refine_stage(depth: int) -> str:
    """Name of the refine stage at a depth: "refine", "refine2", ...

    Raises:
        ValueError: a depth below 1.
    """
    if depth < 1:
        raise ValueError(f"--depth {depth} is not possible: give at least 1")
    return "refine" if depth == 1 else f"refine{depth}"


def winner_of(store: Tracking, stage: str, base: str, name: str | None, command: str) -> Winner:
    """The winner of the newest finished search of a stage with the same recipe and data.

    Args:
        base: ``Plan.base`` of the search that wants to start.
        name: Only of the search with this chosen name.
        command: That runs the stage, for the error.

    Raises:
        ValueError: there is none; says what to run.
    """
    found = store.find("search", scd__stage=stage, scd__base=base)
    named = [run for run in found if name is None or run.tags.get("scd.name") == name]
    ended = [run for run in named if run.status in ("FINISHED", "FAILED")]
    ended = [run for run in ended if "scd.winner" in run.tags]
    if ended:
        return _read(max(ended, key=lambda run: run.start_time))
    if named:
        newest = max(named, key=lambda run: run.start_time)
        raise ValueError(
            f"the {stage} search {newest.name} has no winner yet (it is "
            f"{newest.status.lower()}); go on with it first:\n  {newest.tags['scd.command']}"
        )
    others = sorted({run.tags.get("scd.name") or "without --name" for run in found})
    hint = f" under this name (there are: {', '.join(others)})" if others else ""
    raise ValueError(
        f"no {stage} search of this recipe and data{hint} is in {store.address}; run it first:\n"
        f"  {command}"
    )


def _read(run: RunInfo) -> Winner:
    point = point_of(json.loads(run.tags["scd.winner"]))
    if point is None:
        raise ValueError(f"the search {run.name} names no whole point as its winner")
    steps = run.tags.get("scd.grid_steps")
    return Winner(point, run.name, Steps(**json.loads(steps)) if steps else None)
