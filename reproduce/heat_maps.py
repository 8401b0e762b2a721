"""Heat maps of a search, from what MLflow holds of its trials."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from search.figures import heat_map
from search.space import Point, Space, point_of

if TYPE_CHECKING:
    from scd_core.tracking import Tracking

PAIRS = (("alpha", "lambda"), ("r_A", "r_B"))
"""Settings of each map, across and up."""


def searched(store: Tracking, name: str) -> dict[Point, float]:
    """The points of a search with the mean over its seeds of their best dev evaluation.

    As in the search: a finished trial of another search of the same recipe and data counts where it
    is one of this one's; a pruned one only if it is this one's own, and only where no seed of its
    point was trained to the end.

    Raises:
        ValueError: there is no such search, or none of its trials has a score.
    """
    searches = {run.tags["scd.search"]: run for run in reversed(store.find("search"))}
    if name not in searches:
        known = sorted(searches) or "none"
        raise ValueError(f"--search {name!r} is not in {store.address}; those there are: {known}")
    search = searches[name]
    file = store.file(search.run_id, "search.json")
    if file is None:
        raise ValueError(f"--search {name!r}: its MLflow run has no search.json, so no grid")
    plan = json.loads(file.read_text(encoding="utf-8"))
    axes = (tuple(plan[f"space.{axis}"]) for axis in ("alpha", "lam", "r_a", "r_b"))
    grid, seeds = set(Space(*axes).points), set(map(str, plan["seeds"]))
    whole: dict[Point, dict[str, float]] = {}
    pruned: dict[Point, dict[str, float]] = {}
    found = store.find("trial", **{"scd.base": search.tags["scd.base"]})
    for run in sorted(found, key=lambda r: (r.tags.get("scd.search") != name, r.start_time)):
        point, seed = point_of(run.params), run.tags.get("scd.seed", "")
        score = run.metrics.get(f"best.{plan['metric']}")
        if point not in grid or seed not in seeds or score is None:
            continue
        rule, own = run.tags.get("scd.pruned_by"), run.tags.get("scd.search") == name
        if run.status == "FINISHED" or (own and rule == "collapse"):
            whole.setdefault(point, {}).setdefault(seed, score)
        elif own and rule:
            pruned.setdefault(point, {}).setdefault(seed, score)
    if not whole and not pruned:
        raise ValueError(f"--search {name!r}: none of its trials has a score yet")
    return {point: statistics.fmean(found.values()) for point, found in (pruned | whole).items()}


def write(store: Tracking, name: str, folder: Path) -> list[Path]:
    """Draw the maps of a search as PNG. Returns the files written."""
    means, written = searched(store, name), []
    folder.mkdir(parents=True, exist_ok=True)
    for across, up in PAIRS:
        written.append(folder / f"{name}-{across}-{up}.png")
        written[-1].write_bytes(heat_map(means, across, up))
    return written
