"""Heat maps of a search, from what MLflow holds of its trials."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from search.figures import heat_map
from search.space import Point, Space, point_of

if TYPE_CHECKING:
    from scd_core.tracking import RunInfo, Tracking

PAIRS = (("alpha", "lambda"), ("r_A", "r_B"))
"""Settings of each map, across and up."""


def searched(store: Tracking, name: str) -> dict[Point, float]:
    """The points of a search with the mean over seeds of their best dev evaluation.

    Trials of other searches of the same recipe and data count where they lie on its grid, as they
    do in the search; a pruned trial counts with the best that it reached.

    Raises:
        ValueError: there is no such search, or none of its trials has a score.
    """
    searches = {run.tags["scd.search"]: run for run in store.find("search")}
    if name not in searches:
        known = sorted(searches) or "none"
        raise ValueError(f"--search {name!r} is not in {store.address}; those there are: {known}")
    search = searches[name]
    axes = (json.loads(search.params[f"space.{axis}"]) for axis in ("alpha", "lam", "r_a", "r_b"))
    grid = set(Space(*map(tuple, axes)).points)
    scores: dict[Point, dict[str, float]] = {}
    for run in store.find("trial", **{"scd.base": search.tags["scd.base"]}):
        point, score = point_of(run.params), run.metrics.get(f"best.{search.params['metric']}")
        if point in grid and score is not None and _settled(run):
            scores.setdefault(point, {})[run.tags["scd.identity"]] = score
    if not scores:
        raise ValueError(f"--search {name!r}: none of its trials has a score yet")
    return {point: statistics.fmean(found.values()) for point, found in scores.items()}


def _settled(run: RunInfo) -> bool:
    return run.status == "FINISHED" or bool(run.tags.get("scd.pruned_by"))


def write(store: Tracking, name: str, folder: Path) -> list[Path]:
    """Draw the maps of a search as PNG. Returns the files written."""
    means, written = searched(store, name), []
    folder.mkdir(parents=True, exist_ok=True)
    for across, up in PAIRS:
        written.append(folder / f"{name}-{across}-{up}.png")
        written[-1].write_bytes(heat_map(means, across, up))
    return written
