"""Which points are tried: each once, only r_A < r_B, with what earlier commands found."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from io import StringIO
from pathlib import Path

import optuna
import pytest
import stubs
from rich.console import Console
from stubs import STSB, counted, drive

from scd_core.recipe import Recipe
from scd_core.tracking import Tracking
from search import report
from search.ledger import Ledger
from search.outcome import Outcome, ranked
from search.plan import Budget, Plan, Sampler
from search.proposals import Tpe, proposals
from search.pruning import Pruning
from search.schedule import Schedule
from search.space import Point
from search.study import optuna_url
from search.trial import Report

RATES = tuple(round(0.05 * n, 2) for n in range(8))  # 28 allowed pairs


def noting(log: Path, towards: float = 1.0) -> stubs.Training:
    """Notes each start; the score rises (or falls) with alpha, and a little with r_B."""

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        with log.open("a") as file:
            file.write(f"{recipe.objective.alpha:g} {recipe.views.r_a:g} {recipe.views.r_b:g}\n")
        score = 50 + towards * 40 * recipe.objective.alpha + recipe.views.r_b
        yield Report(20, 20, {STSB: score}, score)

    return training


def starts(log: Path) -> list[str]:
    return log.read_text().splitlines()


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_resumed_search_goes_on_where_it_stopped_and_to_a_larger_budget(
    sampler: Sampler, store: Tracking, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def budget(trials: int) -> Plan:
        alpha = tuple(round(0.1 * n, 1) for n in range(1, 10))
        return stubs.plan(
            alpha, r_a=RATES, r_b=RATES, sampler=sampler, budget=Budget(trials), name="x"
        )

    drive(budget(8), store, noting(log), stop_after=3)
    assert len(starts(log)) == 3
    drive(budget(8), store, noting(log))
    assert len(starts(log)) == 8
    outcomes = drive(budget(12), store, noting(log))
    assert len(starts(log)) == len(set(starts(log))) == len(outcomes) == 12
    study = optuna.load_study(study_name="coarse-x", storage=optuna_url())
    assert Counter(t.state.name for t in study.trials) == {"COMPLETE": 12}
    assert len({tuple(t.params.values()) for t in study.trials}) == 12
    with pytest.raises(ValueError, match=r"space\.alpha was"):
        drive(stubs.plan((0.1,), sampler=sampler, budget=Budget(8), name="x"), store, noting(log))
    with pytest.raises(ValueError, match=r"metric was dev\.stsb"):
        drive(
            stubs.plan(
                budget(8).space.alpha,
                r_a=RATES,
                r_b=RATES,
                sampler=sampler,
                budget=Budget(8),
                name="x",
                metric="dev.sickr.spearman_all",
            ),
            store,
            noting(log),
        )


def test_a_resumed_tpe_has_seen_the_earlier_results(store: Tracking, tmp_path: Path) -> None:
    """Twelve random points, then TPE: it goes where they say, which is not the same for both."""
    found = {}
    for towards in (1.0, -1.0):
        alpha = tuple(round(0.05 * n, 2) for n in range(1, 20))
        plan = stubs.plan(
            alpha,
            sampler="tpe",
            budget=Budget(30),
            name=f"x{towards:g}".replace("-", "m"),
            data_fingerprint=f"{towards:g}" * 10,
            tags={"scd.data_fingerprint": f"{towards:g}" * 10},
            r_a=RATES,
            r_b=RATES,
        )
        log = tmp_path / f"log{towards:g}"
        drive(plan, store, noting(log, towards), stop_after=12)
        drive(plan, store, noting(log, towards))
        drawn = [float(line.split()[0]) for line in starts(log)]
        assert len(drawn) == 30
        found[towards] = sum(drawn[12:]) / 18
    assert found[1.0] > 0.65
    assert found[-1.0] < 0.35


def test_tpe_draws_anew_after_a_resume() -> None:
    """With the same seed, the draws after three results are not the first three again."""
    plan = stubs.plan((0.1, 0.2, 0.3, 0.4), r_a=RATES, r_b=RATES, sampler="tpe", budget=Budget(8))
    first: list[int] = []
    sampler = Tpe(plan)
    for _ in range(3):
        drawn = sampler.next(dict.fromkeys(first, 50.0), set())
        assert drawn is not None
        first.append(drawn)
    later = Tpe(plan).next(dict.fromkeys(first, 50.0), set())
    assert later == sampler.next(dict.fromkeys(first, 50.0), set())
    assert later not in first


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe"])
def test_sixty_trials_keep_r_a_below_r_b(sampler: Sampler, store: Tracking, tmp_path: Path) -> None:
    budget = Budget(None if sampler == "grid" else 60, retries=0)
    alpha = (0.1, 0.2, 0.3)
    plan = stubs.plan(alpha, r_a=RATES, r_b=RATES, sampler=sampler, budget=budget, name="x")
    outcomes = drive(plan, store, noting(tmp_path / "log"))
    runs = store.find("trial")
    pairs = [(run.params["alpha"], run.params["r_A"], run.params["r_B"]) for run in runs]
    assert len(pairs) == len(set(pairs)) == len(outcomes) == (84 if sampler == "grid" else 60)
    assert all(float(a) < float(b) for _, a, b in pairs)
    if sampler == "grid":
        expected = {
            (str(x), str(a), str(b)) for x in alpha for a, b in itertools.combinations(RATES, 2)
        }
        assert set(pairs) == expected
    used = Counter(starts(tmp_path / "log"))
    assert used == {f"{float(x):g} {float(a):g} {float(b):g}": 1 for x, a, b in pairs}
    study = optuna.load_study(study_name="coarse-x", storage=optuna_url())
    assert len(study.trials) == len(pairs)
    assert all(t.params["r_A"] < t.params["r_B"] for t in study.trials)


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe"])
def test_one_allowed_pair_is_one_trial(sampler: Sampler, store: Tracking, tmp_path: Path) -> None:
    budget = Budget(None if sampler == "grid" else 5)
    plan = stubs.plan((0.1,), r_a=(0.1, 0.2), r_b=(0.1, 0.2), sampler=sampler, budget=budget)
    drive(plan, store, noting(tmp_path / "log"))
    assert starts(tmp_path / "log") == ["0.1 0.1 0.2"]
    assert [run.status for run in store.find("search")] == ["FINISHED"]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_every_point_is_proposed_once_until_none_is_left(sampler: Sampler) -> None:
    plan = stubs.plan(
        (0.1, 0.2), r_a=RATES[:4], r_b=RATES[:4], sampler=sampler, seeds=(0, 1), budget=Budget(24)
    )
    source, known = proposals(plan), dict[int, float | None]()
    chance = random.Random(0)
    while (index := source.next(known, set())) is not None:
        assert index not in known
        known[index] = chance.random()
    assert sorted(known) == list(range(len(plan.trials))) == list(range(24))


def test_seeds_are_trials_of_their_own_and_points_rank_by_their_mean(
    store: Tracking, tmp_path: Path
) -> None:
    scores = {0.1: (80.0, 70.0, 72.0), 0.2: (76.0, 77.0, 75.0), 0.3: (90.0, 1.0, None)}

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        score = scores[recipe.objective.alpha][recipe.seed]
        yield Report(20, 20, {STSB: score}, score)

    plan = stubs.plan(tuple(scores), seeds=(0, 1, 2), name="seeds")
    outcomes = drive(plan, store, training)
    assert len({o.trial.identity for o in outcomes}) == 9
    standings = ranked(outcomes)
    assert [(s.point.alpha, s.n, s.mean) for s in standings] == [
        (0.2, 3, 76.0),
        (0.1, 3, 74.0),
        (0.3, 2, 45.5),
    ]
    assert standings[0].spread == 1.0
    assert standings[0].best.trial.recipe.seed == 1
    runs = store.find("trial")
    assert Counter(run.tags["scd.seed"] for run in runs) == {"0": 3, "1": 3, "2": 3}
    best = report.write_best(plan, outcomes, 50.0)
    assert best is not None
    assert "Mean of 3 seeds 76.00" in best.read_text()
    assert "seed = 1\n" in best.read_text()
    shown = StringIO()
    report.print_report(plan, outcomes, {STSB: 50.0}, best, store, Console(file=shown, width=140))
    assert "8 of 9 trials finished" in shown.getvalue()
    assert "(seed 2): no defined" in shown.getvalue()
    more = stubs.plan((0.2,), seeds=(0, 1, 2, 3))
    scores[0.2] = (*scores[0.2], 78.0)
    assert ranked(drive(more, store, training))[0].n == 4
    assert len(store.find("trial")) == 10  # one seed was new


def failing(fails: Mapping[float, int], log: Path) -> stubs.Training:
    """The point with an alpha fails so many times before it succeeds."""

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        alpha = recipe.objective.alpha
        with log.open("a") as file:
            file.write(f"{alpha:g}\n")
        if starts(log).count(f"{alpha:g}") <= fails.get(alpha, 0):
            raise RuntimeError("first line\nno space left on device")
        yield Report(20, 20, {STSB: 50 + alpha}, 50 + alpha)

    return training


def said(plan: Plan, outcomes: Sequence[Outcome], store: Tracking) -> str:
    text = StringIO()
    best = report.write_best(plan, outcomes, 50.0)
    report.print_report(plan, outcomes, {}, best, store, Console(file=text, width=160))
    return text.getvalue()


def test_a_failed_point_runs_again_in_the_next_command_and_no_other_does(
    store: Tracking, tmp_path: Path
) -> None:
    log, plan = tmp_path / "log", stubs.plan((0.1, 0.2, 0.3, 0.4))
    first = drive(plan, store, failing({0.2: 1}, log))
    assert "3 of 4 trials finished" in said(plan, first, store)
    second = drive(plan, store, failing({0.2: 1}, log))
    assert starts(log) == ["0.1", "0.2", "0.3", "0.4", "0.2"]
    assert "4 of 4 trials finished" in said(plan, second, store)


def test_a_point_that_always_fails_is_given_up_after_the_stated_tries_and_listed(
    store: Tracking, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    plan = stubs.plan((0.1, 0.2, 0.3, 0.4), budget=Budget(retries=2))
    outcomes = drive(plan, store, failing({0.2: 99, 0.3: 2}, log))
    assert Counter(starts(log)) == {"0.1": 1, "0.2": 3, "0.3": 3, "0.4": 1}
    text = said(plan, outcomes, store)
    assert "3 of 4 trials finished" in text
    (row,) = [line for line in text.splitlines() if "no space left on device" in line]
    assert [cell.strip() for cell in row.split("│")[2:6]] == ["0.2", "0.01", "10%", "20%"]
    assert [run.status for run in store.find("search")] == ["FAILED"]
    study = optuna.load_study(study_name=plan.name, storage=optuna_url())
    assert Counter(t.state.name for t in study.trials) == {"COMPLETE": 3, "FAIL": 5}


def test_no_trial_starts_after_the_hours_and_the_same_command_goes_on(
    store: Tracking, tmp_path: Path
) -> None:
    plan = stubs.plan((0.1, 0.2, 0.3), budget=Budget(hours=1.0))
    ledger, now = Ledger(plan, store), [0.0]
    schedule = Schedule(plan, ledger, clock=lambda: now[0])
    ledger.open({})
    given = schedule.next()
    assert given not in ("wait", "finished")
    now[0] = 3601.0
    assert schedule.next() == "wait"
    schedule.started(given.trial)
    schedule.report(given.trial, Report(20, 20, {STSB: 60.0}, 60.0))
    schedule.ended(given.trial)
    assert schedule.next() == "finished"
    ledger.close("KILLED")
    assert len(drive(plan, store, counted(tmp_path / "log"))) == 3
    assert starts(tmp_path / "log") == ["0.2", "0.3"]


@pytest.mark.parametrize(
    ("more", "flag"),
    [
        ({"budget": Budget(5)}, "--max-trials"),
        ({"seeds": (1, 1)}, "--seeds"),
        ({"seeds": ()}, "--seeds"),
        ({"chosen_name": "a/b"}, "--name"),
    ],
)
def test_impossible_plans_are_refused_by_the_flag(more: dict[str, object], flag: str) -> None:
    with pytest.raises(ValueError, match=flag):
        stubs.plan((0.1,), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"hours": 0.0}, {"retries": -1}])
def test_impossible_budgets_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is not possible"):
        Budget(**wrong)  # type: ignore[arg-type]


def test_seeds_and_halving_together(store: Tracking) -> None:
    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        for step in range(10, 161, 10):
            score = 50 + 20 * recipe.objective.alpha + recipe.seed / 10 + step / 100
            yield Report(step, 160, {STSB: score}, score)

    plan = stubs.plan(
        (0.1, 0.2, 0.3, 0.4), seeds=(0, 1), steps=160, pruning=Pruning("halving", keep=4)
    )
    standings = ranked(drive(plan, store, training))
    assert standings[0].point == Point(0.4, 0.01, 0.1, 0.2)
    assert [s.whole for s in standings] == [True, False, False, False]
