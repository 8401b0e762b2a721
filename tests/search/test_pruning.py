"""Successive halving and the collapse check, against plainer derivations of both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import optuna
import pytest
import stubs
from optuna.trial import TrialState
from stubs import STSB, drive, scripted

from scd_core.recipe import Recipe
from scd_core.settings import Selection
from scd_core.tracking import Tracking
from search.ledger import Ledger
from search.outcome import ranked
from search.plan import Budget, Plan
from search.pruning import Progress, Pruning, halve
from search.schedule import Assignment, Schedule
from search.study import optuna_url
from search.trial import DroppedError, Job, Report, run_job

HALVING = Pruning("halving", keep=4)


@pytest.mark.parametrize(
    ("steps", "every", "keep", "rungs"),
    [
        (150, 10, 4, (10, 40)),
        (5208, 250, 4, (250, 1250)),
        (16, 8, 4, ()),
        (80, 10, 2, (10, 20, 40)),
        (160, 10, 4, (10, 40)),
    ],
)
def test_rungs_are_evaluated_steps_that_grow_by_keep(
    steps: int, every: int, keep: int, rungs: tuple[int, ...]
) -> None:
    assert Pruning("halving", keep).rungs(steps, every) == rungs
    assert Pruning("collapse", keep).rungs(steps, every) == ()


def test_steps_of_a_halved_grid_are_those_counted_by_hand() -> None:
    # 24 trials to step 10, 6 of them to 40, 2 of those to 150.
    assert HALVING.expected_steps(24, 150, 10) == 24 * 10 + 6 * 30 + 2 * 110 == 640
    assert Pruning().expected_steps(24, 150, 10) == 24 * 150


def plainly(curves: dict[int, dict[int, float]], rungs: tuple[int, ...], keep: int) -> list[set]:  # type: ignore[type-arg]
    """Who goes beyond each rung when every trial of a rung is waited for."""
    members, found = set(curves), []
    for rung in rungs:
        best = {i: max(v for s, v in curves[i].items() if s <= rung) for i in members}
        count = -(-len(members) // keep)
        members = set(sorted(members, key=lambda i: (-best[i], i))[:count])
        found.append(members)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_halving_does_not_depend_on_the_order_in_which_scores_arrive(seed: int) -> None:
    """Trials finish their jobs in random order on 4 workers; the same go on as if all waited."""
    chance = random.Random(seed)
    steps, every, rungs = 80, 10, (10, 20, 40)
    pruning, size = Pruning("halving", keep=2), chance.randint(1, 30)
    curves = {
        i: {s: round(chance.random(), 1) for s in range(every, steps + 1, every)}
        for i in range(size)
    }
    seen: dict[int, dict[int, float | None]] = {}
    running: dict[int, int] = {}
    over: set[int] = set()
    went = {rung: set[int]() for rung in (*rungs, steps)}
    out: dict[int, str] = {}
    while True:
        trials = {i: Progress(seen[i], i in over) for i in seen}
        verdict = halve(trials, size, rungs, steps, pruning)
        assert out.keys() <= verdict.out.keys()  # nobody who is out comes back
        out = dict(verdict.out)
        ready = [i for i in verdict.target if i not in running]
        new = [i for i in range(size) if i not in seen]
        if len(running) < 4 and (ready or new) and chance.random() < 0.7:
            index = chance.choice(ready + new)
            running[index] = verdict.target.get(index, rungs[0])
            seen.setdefault(index, {})
        elif running:
            index = chance.choice(list(running))
            until = running.pop(index)
            seen[index] = {s: v for s, v in curves[index].items() if s <= until}
            went[until].add(index)
            over |= {index} if until == steps else set()
        elif not ready and not new:
            break
    expected = plainly(curves, rungs, 2)
    assert went[rungs[0]] == set(range(size))
    assert [went[s] for s in (20, 40, 80)] == expected
    assert set(out) == set(range(size)) - expected[-1]
    done = sum(
        until - before
        for until, before in zip((*rungs, steps), (0, *rungs), strict=True)
        for _ in went[until]
    )
    assert done == pruning.expected_steps(size, steps, every)


@pytest.mark.parametrize(
    ("selected", "scores", "reason"),
    [
        ({10: 80.0, 20: 74.9}, {}, "the dev score fell from 80.00 to 74.90"),
        ({10: 80.0, 20: 75.0}, {}, ""),
        ({10: 70.0, 20: 80.0, 30: 76.0}, {}, ""),
        ({10: None}, {}, ""),
        ({10: 80.0, 20: None}, {}, "constant"),
        ({10: 80.0}, {"dev.geometry.mean_cosine": 0.999}, "all vectors point one way"),
        ({10: 80.0}, {"dev.geometry.mean_cosine": 0.9}, ""),
        ({10: 80.0}, {"dev.geometry.effective_rank": 1.2}, "span one direction"),
        ({10: 80.0}, {"dev.geometry.effective_rank": 40.0, "dev.geometry.uniformity": -3.0}, ""),
    ],
)
def test_collapse_is_seen_in_falling_scores_and_in_geometry(
    selected: dict[int, float | None], scores: dict[str, float | None], reason: str
) -> None:
    found = Pruning("collapse").collapsed(selected, scores)
    assert reason in found
    assert bool(found) == bool(reason)
    assert Pruning("none").collapsed(selected, scores) == ""


def curve(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
    """160 steps, every tenth evaluated; better by alpha. Notes each step in the trial's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "checkpoint"
    step = start = int(place.read_text()) if place.exists() else 0
    alpha = recipe.objective.alpha
    try:
        for step in range(start + 1, 161):
            with (folder.parent / "steps").open("a") as file:
                file.write(f"{alpha:g} {step}\n")
            if step % 10 == 0:
                score = 50 + 20 * alpha + step / 100
                yield Report(step, 160, {STSB: score}, score)
    except DroppedError:
        raise
    except GeneratorExit:
        place.write_text(str(step))


def halving_plan(**more: object) -> Plan:
    alphas = tuple(round(0.05 * n, 2) for n in range(1, 17))
    return stubs.plan(alphas, steps=160, pruning=HALVING, **more)  # type: ignore[arg-type]


def statuses(plan: Plan, store: Tracking) -> dict[float, str]:
    return {
        float(run.params["alpha"]): run.tags.get("scd.pruned_by") or run.status
        for run in store.find("trial", scd__search=plan.name)
    }


def test_halved_search_trains_as_many_steps_as_it_said_and_records_who_was_pruned(
    store: Tracking,
) -> None:
    plan = halving_plan(name="halved")
    outcomes = drive(plan, store, curve)
    steps = (plan.folder / "trials" / "steps").read_text().splitlines()
    assert len(steps) == len(set(steps)) == 16 * 10 + 4 * 30 + 1 * 120
    assert len(steps) == plan.pruning.expected_steps(16, 160, 10)

    (winner, *others) = ranked(outcomes)
    assert (winner.point.alpha, winner.whole, winner.best.step) == (0.8, True, 160)
    assert [s.point.alpha for s in others[:3]] == [0.75, 0.7, 0.65]
    expected = dict.fromkeys((t.point.alpha for t in plan.trials), "halving") | {0.8: "FINISHED"}
    assert statuses(plan, store) == expected
    for outcome in outcomes[:-1]:
        run = store.get(outcome.run_id)
        step = 40 if outcome.trial.point.alpha >= 0.65 else 10
        score = 50 + 20 * outcome.trial.point.alpha + step / 100
        assert (run.status, run.tags["scd.best_step"]) == ("KILLED", str(step))
        assert run.metrics[f"best.{STSB}"] == outcome.score == pytest.approx(score)
        assert f"at step {step}" in run.tags["scd.reason"]
    study = optuna.load_study(study_name=plan.name, storage=optuna_url())
    assert Counter(t.state for t in study.trials) == {TrialState.PRUNED: 15, TrialState.COMPLETE: 1}
    for (
        trial
    ) in study.trials:  # a pruned trial's value is its best evaluation, and its step is told
        assert trial.value == trial.intermediate_values[trial.user_attrs["best_step"]]
    assert drive(plan, store, curve) == outcomes
    assert len((plan.folder / "trials" / "steps").read_text().splitlines()) == len(steps)


@pytest.mark.parametrize("seed", range(4))
def test_a_halved_search_that_is_killed_and_resumed_prunes_alike(
    store: Tracking, seed: int
) -> None:
    straight, killed = halving_plan(name="straight"), halving_plan(name="killed")
    before = statuses(straight, store) if drive(straight, store, curve) else {}
    chance = random.Random(seed)
    for run in store.find("trial"):  # or the second search would find its points done
        store._client.delete_run(run.run_id)
    for _ in range(8):
        ledger = Ledger(killed, store)
        schedule = Schedule(killed, ledger)
        ledger.open({})
        for _ in range(chance.randint(1, 6)):
            given = schedule.next()
            if not isinstance(given, Assignment):
                break
            schedule.started(given.trial)
            folder = killed.folder_of(given.trial)
            job = Job(given.trial.recipe, folder, 1, given.until, killed.pruning, given.bar)
            reports = run_job(job, curve)
            for report in reports:
                schedule.report(given.trial, report)
                if chance.random() < 0.1:  # the worker dies, and the books say RUNNING
                    break
            else:
                schedule.ended(given.trial)
        reports.close()
    drive(killed, store, curve)
    assert statuses(killed, store) == before
    assert Counter(r.params["alpha"] for r in store.find("trial", scd__search=killed.name)) == (
        dict.fromkeys((f"{t.point.alpha}" for t in killed.trials), 1)
    )
    for run in store.find("trial", scd__search=killed.name):
        steps = [step for step, _ in store.history(run.run_id, STSB)]
        assert steps == list(range(10, int(run.tags["scd.steps"]) + 1, 10))


def test_a_larger_budget_lets_a_pruned_trial_go_on(store: Tracking) -> None:
    some = halving_plan(name="x", sampler="random", budget=Budget(trials=8))
    first = ranked(drive(some, store, curve))
    assert [s.whole for s in first].count(True) == 1
    more = halving_plan(name="x", sampler="random", budget=Budget(trials=16))
    outcomes = drive(more, store, curve)
    assert ranked(outcomes)[0].point.alpha == 0.8
    assert len(outcomes) == 16
    found = Counter(run.tags["scd.identity"] for run in store.find("trial"))
    assert set(found.values()) == {1}


def test_a_collapsed_trial_is_pruned_with_its_best_and_may_win(store: Tracking) -> None:
    script = {0.1: [70, 71, 72], 0.2: [80, 60, 90], 0.3: [65, 30, 30]}
    plan = stubs.plan(tuple(script), pruning=Pruning("collapse"))
    outcomes = drive(plan, store, scripted(script))  # type: ignore[arg-type]
    assert [(o.status, o.score, o.step, o.steps) for o in outcomes] == [
        ("FINISHED", 72, 30, 30),
        ("PRUNED", 80, 10, 20),
        ("PRUNED", 65, 10, 20),
    ]
    assert [s.point.alpha for s in ranked(outcomes)] == [0.2, 0.1, 0.3]
    assert outcomes[1].reason == "collapsed: the dev score fell from 80.00 to 60.00"
    assert store.get(outcomes[1].run_id).tags["scd.pruned_by"] == "collapse"
    again = drive(plan, store, scripted({}))
    assert again == outcomes


@pytest.mark.parametrize("wrong", [{"keep": 1}, {"drop": 0.0}])
def test_impossible_pruning_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=rf"pruning\.{next(iter(wrong))}"):
        Pruning("halving", **wrong)  # type: ignore[arg-type]


def test_the_recipe_s_evaluations_are_the_rungs() -> None:
    plan = stubs.plan((0.1,), recipe=Recipe(selection=Selection(every=25)), steps=400)
    assert Pruning("halving").rungs(plan.steps, plan.recipe.selection.every) == (25, 100)
