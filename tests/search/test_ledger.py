"""The books of a search: what counts as best, as done and as left over, in MLflow and in Optuna."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from io import StringIO
from pathlib import Path

import optuna
import pytest
import stubs
from optuna.trial import TrialState
from rich.console import Console
from stubs import SICKR, STSB, counted, drive, scripted

from scd_core.recipe import from_toml
from scd_core.tracking import Tracking
from search import report
from search.ledger import Ledger
from search.outcome import best_step, ranked
from search.plan import Plan
from search.schedule import Assignment, Schedule
from search.study import optuna_url
from search.trial import Job, Report, run_job


def children(plan: Plan, store: Tracking) -> Counter[tuple[str, str]]:
    runs = store.find("trial", scd__search=plan.name)
    return Counter((run.tags["scd.identity"], run.status) for run in runs)


def optuna_states(plan: Plan) -> Counter[str]:
    study = optuna.load_study(study_name=plan.name, storage=optuna_url())
    return Counter(trial.state.name for trial in study.trials)


def test_nan_is_never_best_in_any_order(store: Tracking) -> None:
    orders = list(itertools.permutations([math.nan, 0.5, 0.6]))
    alphas = [round(0.1 * n, 1) for n in range(1, len(orders) + 1)]
    plan = stubs.plan((*alphas, 0.9))
    script = {**dict(zip(alphas, orders, strict=True)), 0.9: (math.nan, None, math.inf)}
    outcomes = drive(plan, store, scripted(script))

    for outcome, order in zip(outcomes, orders, strict=False):
        assert (outcome.score, outcome.step) == (0.6, 10 * (order.index(0.6) + 1))
        values = [value for _, value in store.history(outcome.run_id, STSB)]
        assert values == [value for value in order if not math.isnan(value)]
        assert STSB in store.get(outcome.run_id).tags["scd.undefined"]
    undefined = outcomes[-1]
    assert (undefined.status, undefined.score) == ("FAILED", None)
    assert undefined.reason == f"no defined {STSB} in 3 evaluations"
    assert ranked(outcomes)[0].mean == 0.6


def test_search_without_a_valid_trial_says_so_and_names_no_best(store: Tracking) -> None:
    plan = stubs.plan((0.1, 0.2))
    outcomes = drive(plan, store, scripted({0.1: [math.nan], 0.2: [None, math.nan]}))
    text = StringIO()
    best = report.write_best(plan, outcomes, None)
    report.print_report(plan, outcomes, {}, best, store, Console(file=text, width=120))
    assert best is None
    assert "no valid trial" in text.getvalue()
    assert "0 of 2 trials finished" in text.getvalue()
    assert optuna_states(plan) == {TrialState.FAIL.name: 2}


def test_best_is_by_best_evaluation_and_ties_by_grid_place(store: Tracking) -> None:
    script = {0.1: [0.70, 0.71], 0.2: [0.80, 0.60], 0.3: [0.80], 0.4: [0.75, 0.80, 0.80]}
    plan = stubs.plan(tuple(script))
    outcomes = drive(plan, store, scripted(script))
    for order in itertools.permutations(outcomes):
        assert [s.point.alpha for s in ranked(order)] == [0.2, 0.3, 0.4, 0.1]
    found = [(o.score, o.step) for o in outcomes]
    assert found == [(0.71, 20), (0.80, 10), (0.80, 10), (0.80, 20)]

    best = report.write_best(plan, outcomes, 0.5)
    assert best is not None
    assert from_toml(best) == outcomes[1].trial.recipe
    report.attach(plan, store, [best], {})
    text = StringIO()
    report.print_report(plan, outcomes, {STSB: 0.5}, best, store, Console(file=text, width=120))
    rows = [line for line in text.getvalue().splitlines() if line.startswith("│")]
    assert "untrained encoder" in rows[0]
    assert [row.split("│")[2].strip() for row in rows[1:]] == ["0.2", "0.3", "0.4", "0.1"]
    study = optuna.load_study(study_name=plan.name, storage=optuna_url())
    assert study.best_value == 0.80


def test_scores_of_the_best_step_stay_together(store: Tracking) -> None:
    evaluations = [(0.798, 0.729), (0.788, 0.732), (0.779, 0.736), (0.572, 0.612)]
    plan = stubs.plan((0.1,))
    for _ in range(2):  # as it ran, and as it is read back
        (outcome,) = drive(plan, store, scripted({0.1: evaluations}))
        assert (outcome.step, dict(outcome.scores)) == (10, {STSB: 0.798, SICKR: 0.729})
    run = store.get(outcome.run_id)
    assert run.tags["scd.best_step"] == "10"
    assert (run.metrics[f"best.{STSB}"], run.metrics[f"best.{SICKR}"]) == (0.798, 0.729)
    assert (run.metrics[STSB], run.metrics[SICKR]) == (0.572, 0.612)  # the final ones stay


def test_failed_points_alone_run_again(store: Tracking, tmp_path: Path) -> None:
    plan, log = stubs.plan((0.1, 0.2, 0.3, 0.4)), tmp_path / "log"
    first = drive(plan, store, counted(log, fail_once=0.2))
    assert [o.trial.point.alpha for o in first if not o.settled] == [0.2]
    assert [run.status for run in store.find("search")] == ["FAILED"]

    second = drive(plan, store, counted(log, fail_once=0.2))
    assert all(o.settled for o in second)
    assert log.read_text().split() == ["0.1", "0.2", "0.3", "0.4", "0.2"]
    assert children(plan, store) == {(t.identity, "FINISHED"): 1 for t in plan.trials}
    assert optuna_states(plan) == {"COMPLETE": 4, "FAIL": 1}
    assert [run.status for run in store.find("search")] == ["FINISHED"]


def test_points_of_another_search_are_shared(store: Tracking, tmp_path: Path) -> None:
    log, larger = tmp_path / "log", stubs.plan((0.3, 0.2, 0.1))
    drive(stubs.plan((0.1, 0.2)), store, counted(log))
    outcomes = drive(larger, store, counted(log))
    assert log.read_text().split() == ["0.1", "0.2", "0.3"]
    assert [o.settled for o in outcomes] == [True] * 3
    assert optuna_states(larger) == {"COMPLETE": 3}


def test_a_name_means_one_search(store: Tracking, tmp_path: Path) -> None:
    mine = stubs.plan((0.1,), name="x")
    outcomes = drive(mine, store, counted(tmp_path / "log"))
    for other, reason in (
        (stubs.plan((0.2,), name="x"), r"space\.alpha was \[0\.1\]"),
        (stubs.plan((0.1,), name="x", seed=1), r"seeds was \[0\], now \[1\]"),
    ):
        with pytest.raises(ValueError, match=reason):
            drive(other, store, counted(tmp_path / "log"))
    assert drive(mine, store, counted(tmp_path / "log")) == outcomes
    assert len(store.find("trial")) == 1


def begin(plan: Plan, store: Tracking) -> tuple[Ledger, Schedule, Assignment]:
    """A search whose first trial has begun."""
    ledger = Ledger(plan, store)
    schedule = Schedule(plan, ledger)
    ledger.open({})
    given = schedule.next()
    assert isinstance(given, Assignment)
    schedule.started(given.trial)
    return ledger, schedule, given


def test_what_a_killed_process_left_open_is_closed_and_done_once(
    store: Tracking, tmp_path: Path
) -> None:
    plan = stubs.plan((0.1, 0.2, 0.3))
    _, schedule, _ = begin(plan, store)
    schedule.next()  # proposed, never begun; and now the process is gone

    opened = Ledger(plan, store)
    opened.open({})
    assert [run.status for run in store.find("trial")] == ["KILLED"]
    opened.close("KILLED")

    drive(plan, store, counted(tmp_path / "log"))
    assert children(plan, store) == {(t.identity, "FINISHED"): 1 for t in plan.trials}
    assert optuna_states(plan) == {"COMPLETE": 3}
    assert len(store.find("search")) == 1


def test_a_run_that_was_killed_before_its_parameters_were_written_is_taken_up(
    store: Tracking, tmp_path: Path
) -> None:
    plan = stubs.plan((0.1, 0.2))
    ledger = Ledger(plan, store)
    ledger.open({})
    tags = {"scd.search": plan.name, "scd.grid_index": "1", "scd.identity": plan.trials[1].identity}
    store.create("trial", "torn", {**plan.tags, **tags}, {}, ledger.parent)
    drive(plan, store, counted(tmp_path / "log"))
    assert children(plan, store) == {(t.identity, "FINISHED"): 1 for t in plan.trials}
    assert {run.params["alpha"] for run in store.find("trial")} == {"0.1", "0.2"}


def test_evaluations_that_no_driver_heard_are_told_by_the_next_attempt(store: Tracking) -> None:
    plan = stubs.plan((0.1,))
    _, schedule, given = begin(plan, store)
    job = Job(given.trial.recipe, plan.folder_of(given.trial), 1, None, plan.pruning)

    def straight(recipe, folder, threads):  # type: ignore[no-untyped-def]
        for step, score in ((10, 0.9), (20, 0.95), (30, 0.8), (40, 0.7)):
            yield Report(step, 40, {STSB: score}, score)

    reports = run_job(job, straight)
    schedule.report(given.trial, next(reports))
    assert next(reports).step == 20  # the driver is killed before it hears
    reports.close()

    def goes_on(recipe, folder, threads):  # type: ignore[no-untyped-def]
        yield Report(25, 40)  # from a checkpoint behind both
        yield Report(30, 40, {STSB: 0.8}, 0.8)
        yield Report(40, 40, {STSB: 0.7}, 0.7)

    (outcome,) = drive(plan, store, goes_on)
    assert (outcome.step, outcome.score) == (20, 0.95)
    expected = [(10, 0.9), (20, 0.95), (30, 0.8), (40, 0.7)]
    assert store.history(store.find("trial")[0].run_id, STSB) == expected


def test_evaluations_behind_the_checkpoint_come_again_and_count_once(store: Tracking) -> None:
    plan = stubs.plan((0.1,))
    _, schedule, given = begin(plan, store)
    for step, score in ((10, 0.9), (20, 0.95)):  # of a machine that computed otherwise
        schedule.report(given.trial, Report(step, 30, {STSB: score}, score))

    def again(recipe, folder, threads):  # type: ignore[no-untyped-def]
        for step, score in ((10, 0.9), (20, 0.7), (30, 0.8)):
            yield Report(step, 30, {STSB: score}, score)

    (outcome,) = drive(plan, store, again)
    assert (outcome.step, outcome.score) == (10, 0.9)
    assert [step for step, _ in store.history(outcome.run_id, STSB)] == [10, 20, 20, 30]


def test_finished_in_mlflow_but_not_told_to_optuna_is_told_once(store: Tracking) -> None:
    plan = stubs.plan((0.1, 0.2))
    drive(plan, store, scripted({0.1: [0.5], 0.2: [0.6]}))
    Path(optuna_url().removeprefix("sqlite:///")).unlink()
    store.finish(store.find("search")[0].run_id, "KILLED")
    for _ in range(2):
        drive(plan, store, scripted({}))
        assert optuna_states(plan) == {"COMPLETE": 2}


def test_search_is_written_down(store: Tracking) -> None:
    plan = stubs.plan((0.1,), name="noted")
    drive(plan, store, scripted({0.1: [0.5]}))
    noted = json.loads((plan.folder / "search.json").read_text())
    assert (noted["name"], noted["space.alpha"]) == ("coarse-noted", [0.1])


def test_best_step_takes_the_first_of_equals_and_no_undefined_one() -> None:
    assert best_step({30: 0.8, 10: None, 20: 0.8}) == 20
    assert best_step({10: None}) is None
    assert best_step({}) is None
