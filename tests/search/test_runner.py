"""Searches on real workers with stub trainings."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from io import StringIO
from pathlib import Path

import optuna
import pytest
import stubs
from ray import cloudpickle
from rich.console import Console
from stubs import STSB, counted

import search.trial
from scd_core.tracking import Tracking
from search.outcome import Outcome
from search.plan import Plan
from search.runner import run_search
from search.study import optuna_url
from search.trial import Training

cloudpickle.register_pickle_by_value(sys.modules["stubs"])


def run(plan: Plan, store: Tracking, training: Training) -> list[Outcome]:
    return run_search(plan, store, {STSB: 50.0}, Console(file=StringIO()), training)


@pytest.mark.usefixtures("shared_ray")
def test_every_point_runs_once_and_a_second_run_runs_nothing(
    store: Tracking, tmp_path: Path
) -> None:
    plan = stubs.plan((0.1, 0.2), (0.01, 0.1), (0.0, 0.1), (0.1, 0.2), name="once")
    log = tmp_path / "log"
    outcomes = run(plan, store, counted(log))

    assert len(log.read_text().split()) == len(plan.trials) == 12
    assert [o.trial for o in outcomes] == list(plan.trials)
    runs = store.find("trial", scd__search="coarse-once")
    found = Counter((r.tags["scd.identity"], r.status) for r in runs)
    assert found == {(t.identity, "FINISHED"): 1 for t in plan.trials}
    study = optuna.load_study(study_name="coarse-once", storage=optuna_url())
    told = Counter(
        (t.params["alpha"], t.params["lambda"], t.params["r_A"], t.params["r_B"], t.state.name)
        for t in study.trials
    )
    points = [tuple(t.point.symbols().values()) for t in plan.trials]
    assert told == {(*point, "COMPLETE"): 1 for point in points}
    for outcome in outcomes:
        child = store.get(outcome.run_id)
        shown = {name: float(child.params[name]) for name in ("alpha", "lambda", "r_A", "r_B")}
        assert shown == outcome.trial.point.symbols()
        assert [step for step, _ in store.history(child.run_id, STSB)] == [10, 20]
        parent = store.get(child.tags["mlflow.parentRunId"])
        assert (parent.status, parent.name) == ("FINISHED", "coarse-once")

    assert run(plan, store, counted(log)) == outcomes
    assert len(log.read_text().split()) == 12
    assert len(store.find()) == 13


@pytest.mark.usefixtures("shared_ray")
def test_a_trial_that_raises_or_dies_is_recorded_and_the_others_go_on(
    store: Tracking, tmp_path: Path
) -> None:
    plan = stubs.plan((0.1, 0.2, 0.3, 0.4))
    outcomes = run(plan, store, counted(tmp_path / "log", fail_once=0.2, die=0.4))
    assert [o.status for o in outcomes] == ["FINISHED", "FAILED", "FINISHED", "FAILED"]
    assert outcomes[3].reason == "its worker process died (killed, or out of memory)"
    assert outcomes[1].reason == "RuntimeError: the loss is nan at step 15 of 20"
    failed = store.get(outcomes[1].run_id)
    assert (failed.status, failed.tags["scd.reason"]) == ("FAILED", outcomes[1].reason)
    kept = {path.name for path in (plan.folder / "trials").iterdir()}
    # The loser's model is gone; the best one and what may be resumed are not.
    assert kept == {trial.identity for trial in plan.trials[1:]}


def test_workers_write_neither_mlflow_nor_optuna() -> None:
    source = Path(search.trial.__file__).read_text(encoding="utf-8")
    names = {
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "scd_core.training" in names
    writers = ("mlflow", "optuna", "scd_core.tracking", "search.ledger", "search.study")
    assert not [name for name in names if name.startswith(writers)]
