"""What a search says at its end: numbers worked by hand, text read back."""

from __future__ import annotations

import itertools
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import stubs
from stubs import STSB, drive, scripted

from scd_core.tracking import Tracking
from search import report
from search.analysis import Confirmation, best_by, edges, expected_best, importance
from search.outcome import Outcome, ranked
from search.page import write_page
from search.plan import Plan
from search.pruning import Pruning
from search.space import Point, Space


@pytest.mark.parametrize("scores", [[60.0], [1.0, 2.0], [3.0, 1.0, 2.0, 10.0], [5.0] * 4])
def test_expected_best_is_the_mean_over_all_choices_of_n_trials(scores: list[float]) -> None:
    found = expected_best(scores)
    for n, expected in enumerate(found, 1):
        choices = [max(chosen) for chosen in itertools.combinations(scores, n)]
        assert expected == pytest.approx(sum(choices) / len(choices))
    assert found[-1] == max(scores)


def finished(plan: Plan, score: dict[int, float]) -> list[Outcome]:
    return [
        Outcome(trial, "FINISHED", "r", 20, score[trial.index], steps=20, seconds=(0.0, 1.0 + n))
        for n, trial in enumerate(plan.trials)
    ]


def test_an_optimum_at_an_edge_is_told_with_flags_that_move_the_edge() -> None:
    grid = ((0.1, 0.2, 0.3), (0.001, 0.01, 0.1), (0.0, 0.1, 0.2), (0.1, 0.2, 0.3))
    plan = stubs.plan(*grid)
    assert edges(plan, Point(0.2, 0.01, 0.1, 0.2)) == []
    found = {edge.symbol: edge for edge in edges(plan, Point(0.3, 0.001, 0.0, 0.3))}
    assert set(found) == {"alpha", "lambda", "r_B"}  # r_A is at 0, where it ends
    assert found["alpha"].flags == "--space.alpha 0.1 0.2 0.3 0.4 0.5"
    assert found["lambda"].flags == "--space.lam 1e-05 0.0001 0.001 0.01 0.1"
    assert found["r_B"].flags == "--space.r-b 0.1 0.2 0.3 0.4 0.5"
    assert "highest" in str(found["alpha"])
    assert "lowest" in str(found["lambda"])
    (low,) = edges(plan, Point(0.1, 0.01, 0.1, 0.2))
    assert low.flags == "--space.alpha 0.05 0.1 0.2 0.3"  # in steps of 0.1 there is none below
    (low,) = edges(plan, Point(0.2, 0.01, 0.0, 0.1))
    assert low.flags == "--space.r-b 0.05 0.1 0.2 0.3"  # r_A is 0 at least, and r_B above it
    assert edges(plan, Point(0.2, 0.01, 0.2, 0.3))[0].symbol == "r_B"  # no r_A of 0.3 or more
    one = stubs.plan((0.1,), r_a=(0.1,), r_b=(0.2,))
    assert edges(one, Point(0.1, 0.01, 0.1, 0.2)) == []
    fine = stubs.plan(*grid, stage="fine")
    (edge,) = edges(fine, Point(0.3, 0.01, 0.1, 0.2))
    assert edge.flags == "--around.alpha-reach 3"


def test_the_flags_that_move_an_edge_give_a_grid_that_holds_the_old_one() -> None:
    plan = stubs.plan((0.1, 0.2), (0.01, 0.1), (0.1, 0.2), (0.3, 0.5))
    winner = Point(0.2, 0.1, 0.2, 0.5)
    space = plan.space
    wider = {edge.symbol: tuple(map(float, edge.flags.split()[1:])) for edge in edges(plan, winner)}
    larger = Space(wider["alpha"], wider["lambda"], wider["r_A"], wider["r_B"])
    assert set(space.points) < set(larger.points)
    assert edges(stubs.plan(*wider.values()), winner) == []


def test_importance_finds_the_one_setting_that_matters() -> None:
    plan = stubs.plan((0.1, 0.2, 0.3), (0.001, 0.01), (0.0, 0.1), (0.2, 0.3))
    score = {t.index: 100 * t.point.r_b for t in plan.trials}
    found = importance(plan, finished(plan, score))
    assert found is not None
    assert found["r_B"] > 0.95
    assert sum(found.values()) == pytest.approx(1)
    assert importance(plan, finished(plan, dict.fromkeys(score, 5.0))) is None
    assert importance(plan, finished(plan, score)[:3]) is None


def test_cells_of_a_heat_map_are_the_best_over_the_other_settings() -> None:
    plan = stubs.plan((0.1, 0.2), (0.001, 0.01), (0.0, 0.1), (0.2, 0.3))
    chance = random.Random(0)
    outcomes = finished(plan, {t.index: chance.random() for t in plan.trials})
    found = best_by({s.point: s.mean for s in ranked(outcomes)}, "alpha", "lambda")
    assert len(found) == 4
    for (alpha, lam), best in found.items():
        mine = [
            o.score for o in outcomes if (o.trial.point.alpha, o.trial.point.lam) == (alpha, lam)
        ]
        assert best == max(s for s in mine if s is not None)


class Page(HTMLParser):
    """Text, pictures and addresses of a page, whose tags must be closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text, self.images, self.open = "", list[str](), list[str]()
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(dict(attrs)["src"] or "")
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_holds_all_and_needs_nothing_else(store: Tracking) -> None:
    script = {
        0.1: [60.0, 61.0],
        0.2: [62.0, 50.0],
        0.3: [RuntimeError("no <room> left")],
        0.4: [70.0],
    }
    plan = stubs.plan(
        tuple(script), (0.01, 0.1), (0.0, 0.1), (0.2, 0.3), pruning=Pruning("collapse"), name="x"
    )
    outcomes = drive(plan, store, scripted(script))  # type: ignore[arg-type]
    best = report.write_best(plan, outcomes, 55.0)
    again = stubs.plan((0.4,), seeds=(1, 2))
    confirmation = Confirmation(70.0, tuple(finished(again, {0: 68.0, 1: 69.0})))
    path = write_page(plan, outcomes, {STSB: 55.0}, best, ["took 1 s"], confirmation)
    source, page = path.read_text(), Page(path)
    assert not re.search(r"(src|href)=['\"](?!data:)", source)
    assert "<script" not in source
    assert "@import" not in source
    assert len(page.images) == 6
    assert all(image.startswith("data:image/png;base64,iVBOR") for image in page.images)
    for said in (
        "Best: alpha 0.4, lambda 0.01, r_A 0%, r_B 20%",
        "on 2 fresh seeds: 68.50 (68.00 69.00)",
        "differs by +1.50",
        "no <room> left",
        "collapsed: the dev score fell from 62.00 to 50.00",
        "--space.alpha 0.1 0.2 0.3 0.4 0.5 0.6",
        f"python -m scd_core.train --recipe {best}",
        "no test set was read",
        "16 finished, 8 pruned, 8 failed of 32",
        "+15.00",
        "took 1 s",
    ):
        assert said in page.text, said
    assert len(source) < 1_000_000


def test_the_page_of_a_search_without_a_score_says_why(store: Tracking) -> None:
    plan = stubs.plan((0.1,))
    outcomes = drive(plan, store, scripted({0.1: [RuntimeError("broken")]}))
    page = Page(write_page(plan, outcomes, {}, None, []))
    assert "broken" in page.text
    assert not page.images
