"""Heat maps of a search: which trials of MLflow they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reproduce import figures, heat_maps
from scd_core.run_info import Status
from scd_core.tracking import Tracking
from search.space import Point

METRIC = "dev.stsb.spearman_all"


@pytest.fixture
def store(ready_home: Path) -> Tracking:
    """Two searches of one base; the second has the first's points and more."""
    store = Tracking()
    for name, alphas in (("coarse-a", [0.1, 0.2]), ("coarse-b", [0.1, 0.2, 0.3])):
        axes = {"alpha": alphas, "lam": [0.01], "r_a": [0.0], "r_b": [0.1, 0.2]}
        plan = {"metric": METRIC, "seeds": [0, 1]}
        plan |= {f"space.{axis}": values for axis, values in axes.items()}
        tags = {"scd.search": name, "scd.base": "b", "scd.identity": name}
        store.text(store.start("search", name, tags, {}), json.dumps(plan), "search.json")

    def trial(
        alpha: float,
        r_b: float,
        score: float,
        seed: int = 0,
        status: Status = "FINISHED",
        base: str = "b",
        **tags: str,
    ) -> None:
        symbols = {"alpha": alpha, "lambda": 0.01, "r_A": 0.0, "r_B": r_b}
        told = {"scd.base": base, "scd.seed": str(seed), "scd.search": "coarse-a"}
        told |= {f"scd.{name}": value for name, value in tags.items()}
        run_id = store.create("trial", "trial", told, symbols)
        store.log(run_id, {f"best.{METRIC}": score})
        store.finish(run_id, status)

    trial(0.1, 0.1, 70.0, seed=1, search="coarse-b")  # run before the other search's own
    trial(0.1, 0.1, 50.0)
    trial(0.1, 0.1, 52.0, seed=1)
    trial(0.1, 0.1, 99.0, seed=2)  # a confirmation of the winner
    trial(0.1, 0.1, 20.0, seed=1, status="KILLED", pruned_by="halving")  # another seed is whole
    trial(0.1, 0.2, 40.0, status="KILLED", pruned_by="halving")
    trial(0.3, 0.1, 99.0, status="KILLED", pruned_by="halving")  # not of the search that has it
    trial(0.2, 0.1, 99.0, status="KILLED")  # interrupted
    trial(0.2, 0.2, 99.0, base="other")
    trial(0.3, 0.2, 60.0)
    return store


def test_the_maps_show_settled_trials_of_the_grid_by_their_mean(store: Tracking) -> None:
    here = {Point(0.1, 0.01, 0.0, 0.1): 51.0, Point(0.1, 0.01, 0.0, 0.2): 40.0}
    assert heat_maps.searched(store, "coarse-a") == here
    shared = {Point(0.1, 0.01, 0.0, 0.1): 60.0, Point(0.3, 0.01, 0.0, 0.2): 60.0}
    assert heat_maps.searched(store, "coarse-b") == shared


def test_the_command_writes_two_pictures(store: Tracking, tmp_path: Path) -> None:
    assert figures.run(["--search", "coarse-a", "--output", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"coarse-a-alpha-lambda.png", "coarse-a-r_A-r_B.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "out").iterdir())
    with pytest.raises(ValueError, match=r"'nope' is not in .*coarse-a.*coarse-b"):
        figures.run(["--search", "nope"])


def test_without_a_store_nothing_is_made() -> None:
    with pytest.raises(ValueError, match="is not there"):
        figures.run(["--search", "coarse-a"])
