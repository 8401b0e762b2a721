"""Fine and refine grids: built exactly, around the last stage's winner, which MLflow gives."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
import stubs
from ray import cloudpickle
from rich.console import Console
from stub_command import stub_cost, stub_inputs
from stubs import counted, drive, scripted

from scd_core.tracking import Tracking
from search import coarse_grid, command, fine_grid, refine_grid
from search.runner import run_search
from search.space import COARSE, Point
from search.stages import FINE, REFINE, Around, Steps, Winner, ladder, refine_stage, winner_of

cloudpickle.register_pickle_by_value(sys.modules["stubs"])
BERT, ROBERTA = Point(0.005, 0.013, 0.05, 0.15), Point(0.0033, 0.028, 0.065, 0.24)


def grid(winner: Winner, around: Around) -> tuple[set[Point], Steps]:
    steps = around.steps(winner.finer())
    return set(around.space(winner.point, steps).points), steps


def test_ladder_is_what_one_would_write_down() -> None:
    assert ladder(0.1, 0.01, 3, lambda v: True) == (0.07, 0.08, 0.09, 0.1, 0.11, 0.12, 0.13)
    assert ladder(0.3, 0.1, 2, lambda v: v > 0) == (0.1, 0.2, 0.3, 0.4, 0.5)
    for value in ladder(0.013, 0.0001, 40, lambda v: True):
        assert Decimal(repr(value)) % Decimal("0.0001") == 0
    assert ladder(0.0, 0.01, 2, lambda v: 0 <= v < 1) == (0.0, 0.01, 0.02)


def test_fine_grid_has_the_steps_of_the_paper_and_ends_before_the_coarse_neighbours() -> None:
    winner = Winner(Point(0.3, 0.01, 0.1, 0.2), "coarse", None)
    points, steps = grid(winner, FINE)
    assert steps == Steps(alpha=0.01, lam=0.001, rate=0.01)
    assert {p.alpha for p in points} == {round(0.21 + 0.01 * n, 2) for n in range(19)}
    assert {p.lam for p in points} == {round(0.001 * n, 3) for n in range(1, 20)}
    assert {p.r_a for p in points} == {round(0.01 * n, 2) for n in range(1, 20)}
    assert {p.r_b for p in points} == {round(0.11 + 0.01 * n, 2) for n in range(19)}
    assert all(p.r_a < p.r_b for p in points)
    shared = points & set(COARSE.points)
    assert shared == {winner.point, dataclasses.replace(winner.point, lam=0.001)}


def test_grid_around_a_corner_stays_possible() -> None:
    points, _ = grid(Winner(Point(0.01, 0.001, 0.0, 0.01), "x", None), FINE)
    assert min(p.alpha for p in points) == 0.01
    assert min(p.lam for p in points) == 0.0001
    assert min(p.r_a for p in points) == 0.0
    assert points
    assert all(p.r_a < p.r_b for p in points)


def test_a_winner_at_0_is_on_its_own_grid() -> None:
    winner = Winner(Point(0.0, 0.01, 0.0, 0.1), "coarse", None)
    points, _ = grid(winner, FINE)
    assert winner.point in points
    assert {p.alpha for p in points} == {round(0.01 * n, 2) for n in range(10)}


def test_steps_of_lambda_are_asked_for_where_the_winner_s_lambda_is_0() -> None:
    winner = Winner(Point(0.1, 0.0, 0.0, 0.1), "coarse", None)
    with pytest.raises(ValueError, match=r"around\.lam_step = None .*--around\.lam-step"):
        grid(winner, FINE)
    points, steps = grid(winner, dataclasses.replace(FINE, lam_step=0.001))
    assert {p.lam for p in points} == {round(0.001 * n, 3) for n in range(10)}
    points, _ = grid(Winner(winner.point, "fine", steps), REFINE)
    assert {p.lam for p in points} == {round(0.0001 * n, 4) for n in range(10)}
    points, steps = grid(winner, dataclasses.replace(FINE, lam_reach=0))
    assert {p.lam for p in points} == {0.0}
    with pytest.raises(ValueError, match=r"around\.lam_step"):
        grid(Winner(winner.point, "fine", steps), REFINE)


@pytest.mark.parametrize(
    ("coarse", "target", "depth"),
    [(Point(0.1, 0.01, 0.1, 0.2), BERT, 1), (Point(0.1, 0.1, 0.1, 0.2), ROBERTA, 2)],
)
def test_published_optima_are_on_no_grid_of_the_paper_and_on_a_refined_one(
    coarse: Point, target: Point, depth: int
) -> None:
    """Always going to the nearest point, as a search whose best is there would."""

    def nearest(points: set[Point]) -> Point:
        return min(
            points,
            key=lambda p: sum(
                abs(a - b) / b
                for a, b in zip(dataclasses.astuple(p), dataclasses.astuple(target), strict=True)
            ),
        )

    assert target not in COARSE.points
    points, steps = grid(Winner(coarse, "coarse", None), FINE)
    assert target not in points
    for _ in range(depth):
        points, steps = grid(Winner(nearest(points), "before", steps), REFINE)
    assert target in points


def test_refine_is_finer_than_fine_in_every_setting() -> None:
    _, fine = grid(Winner(Point(0.1, 0.01, 0.1, 0.2), "coarse", None), FINE)
    _, refined = grid(Winner(Point(0.01, 0.013, 0.06, 0.15), "fine", fine), REFINE)
    assert refined == Steps(alpha=0.001, lam=0.0001, rate=0.005)
    asked = Around(1, 1, 1, alpha_step=0.002).steps(Winner(BERT, "fine", fine).finer())
    assert asked == Steps(alpha=0.002, lam=0.0001, rate=0.005)


@pytest.mark.parametrize("wrong", [{"alpha_reach": -1}, {"lam_step": 0.0}])
def test_impossible_ranges_are_refused_by_name(wrong: dict[str, float]) -> None:
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=rf"around\.{name}"):
        Around(**{"alpha_reach": 1, "lam_reach": 1, "rate_reach": 1, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="--depth"):
        refine_stage(0)


def test_winner_is_that_of_the_newest_finished_search_of_the_same_recipe_and_data(
    store: Tracking,
) -> None:
    def ask(name: str | None = None, stage: str = "coarse", base: str | None = None) -> Winner:
        return winner_of(store, stage, base or plan.base, name, "python -m search.coarse_grid")

    plan = stubs.plan((0.1, 0.2))
    with pytest.raises(ValueError, match=r"run it first:\n  python -m search\.coarse_grid"):
        ask()
    drive(plan, store, scripted({0.1: [0.5], 0.2: [0.6]}))
    assert ask() == Winner(Point(0.2, 0.01, 0.1, 0.2), plan.name, None)
    drive(stubs.plan((0.3,), name="mine"), store, scripted({0.3: [0.9]}))
    assert ask().point.alpha == 0.3
    assert ask("mine").search == "coarse-mine"
    for unknown in ({"stage": "fine"}, {"base": "0" * 12}, {"name": "yours"}):
        with pytest.raises(ValueError, match="run it first"):
            ask(**unknown)
    unfinished = stubs.plan((0.4, 0.5), name="half")
    drive(unfinished, store, scripted({0.4: [0.9], 0.5: [0.9]}), stop_after=1)
    with pytest.raises(ValueError, match=r"no winner yet \(it is killed\); go on with it first"):
        ask("half")
    assert ask().search == "coarse-mine"


@pytest.mark.usefixtures("shared_ray", "store")
def test_stages_run_after_one_another_without_naming_anything_but_the_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    console = Console(record=True, width=200, file=StringIO())
    monkeypatch.setattr(command, "console", console)
    monkeypatch.setattr(command, "prepare", stub_inputs)
    monkeypatch.setattr(command, "measure", stub_cost)
    monkeypatch.setattr(command, "run_search", functools.partial(run_search, training=counted(log)))
    stages = [
        (coarse_grid.run, [], "coarse", 12),
        (fine_grid.run, [], "fine", 8),
        (refine_grid.run, [], "refine", 8),
        (refine_grid.run, ["--depth", "2", "--max-trials", "3"], "refine2", 3),
    ]
    with pytest.raises(ValueError, match=r"python -m search\.coarse_grid --preset quick"):
        fine_grid.run([])
    for run, flags, _, _ in stages:
        assert run(flags) == 0
    store = Tracking()
    parents = {p.tags["scd.stage"]: p for p in store.find("search")}
    for (_, _, before, _), (_, _, after, _) in itertools.pairwise(stages):
        assert parents[after].tags["scd.started_from"] == parents[before].name
    for _, _, stage, trials in stages:
        assert parents[stage].status == "FINISHED"
        assert parents[stage].name.startswith(f"{stage}-quick-")
        children = store.find("trial", scd__stage=stage)
        own = {c.tags["mlflow.parentRunId"] for c in children}
        assert own == {parents[stage].run_id}
        assert len(children) <= trials
    done = log.read_text().split()
    for run, flags, _, _ in stages:  # again: everything is read, nothing runs
        assert run(flags) == 0
    assert log.read_text().split() == done
    assert "starts from the winner of fine-quick-" in console.export_text()
