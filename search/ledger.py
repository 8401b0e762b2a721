"""The search's books: the one writer of MLflow and Optuna, so that no two disagree or collide.

MLflow is the truth: a trial is done when its run says so there, and Optuna is told after it, once
and with everything. What an earlier process left open is closed before anything starts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import cast

from scd_core.run_info import RunInfo, Status
from scd_core.tracking import Tracking
from search.claim import refuse_another, write_description
from search.outcome import Outcome, Rule, best_step, ranked
from search.plan import Plan, Trial
from search.space import point_of
from search.study import Study
from search.trial import Report

_BEST = "best."


def read_outcomes(plan: Plan, store: Tracking) -> dict[int, Outcome]:
    """The plan's trials that MLflow holds as settled, by grid index.

    Finished ones count whichever search ran them; pruned ones only of this search, since what is
    pruned follows from the others.
    """
    found: dict[int, Outcome] = {}
    runs = store.find("trial", scd__data_fingerprint=plan.data_fingerprint)
    for run in sorted(runs, key=lambda r: (r.tags.get("scd.search") != plan.name, r.start_time)):
        outcome = _outcome_of(run, plan)
        if outcome is None or outcome.trial.index in found:
            continue
        own = run.tags.get("scd.search") == plan.name
        if outcome.status == "FINISHED" or (own and outcome.settled):
            found[outcome.trial.index] = outcome
    return found


class Ledger:
    """Records what becomes of trials in MLflow and Optuna.

    Not for two processes at once on one search: the runner holds a lock.
    """

    def __init__(self, plan: Plan, store: Tracking) -> None:
        """Read the books of ``plan``, refusing those of another search of that name."""
        refuse_another(plan, store)
        self.plan, self._store = plan, store
        self.outcomes = read_outcomes(plan, store)
        self.selected: dict[int, dict[int, float | None]] = {}
        """Ranking dev scores by trial and step, of all trials that halving compares."""
        self._scores: dict[int, dict[int, dict[str, float]]] = {}
        self._runs: dict[int, str] = {}  # open ones
        self._began: dict[int, float] = {}
        self._left: dict[int, RunInfo] = {}  # this search's own runs that are not finished
        self._logged: dict[int, dict[int, float]] = {}
        for index, run in self._own_runs():
            if run.status != "FINISHED":
                self._left[index] = run
                self._logged[index] = dict(store.history(run.run_id, plan.metric))
                self.selected[index] = dict(self._logged[index])
        if plan.pruning.rule == "halving":
            for index in self.outcomes.keys() - self.selected.keys():
                history = store.history(self.outcomes[index].run_id, plan.metric)
                self.selected[index] = dict(history)
        parents = store.find("search", scd__identity=plan.identity, scd__search=plan.name)
        self._parent_run = max(parents, key=lambda run: run.start_time, default=None)

    @property
    def begun(self) -> list[int]:
        """Trials of this search that have a run and no result, by grid index."""
        return sorted(self._left.keys() - self.outcomes.keys())

    @property
    def closed(self) -> bool:
        """Whether the search is written down as finished."""
        return self._parent_run is not None and self._parent_run.status == "FINISHED"

    def open(
        self, untrained: Mapping[str, float | None], tags: Mapping[str, str] | None = None
    ) -> None:
        """Write the search down, and close what a killed process left open under its name.

        Args:
            untrained: Dev scores of the encoder before training, by metric name.
            tags: Further ones of the search's run.
        """
        plan, store = self.plan, self._store
        described = write_description(plan)
        labels = {"scd.search": plan.name, "scd.stage": plan.stage, "scd.base": plan.base}
        labels |= {"scd.name": plan.chosen_name or "", "scd.command": plan.command}
        self._labels = {**plan.tags, **labels}
        labels = self._labels | {"scd.identity": plan.identity} | dict(tags or {})
        params = {k: v for k, v in plan.description.items() if k not in ("stage", "recipe")}
        if self._parent_run is None:
            self.parent = store.create("search", plan.name, labels, params)
        else:
            self.parent = self._parent_run.run_id
            store.resume(self._parent_run, labels, params)
        store.inputs(self.parent, plan.data)
        store.text(self.parent, plan.recipe.to_toml(), "recipe.toml")
        store.artifact(self.parent, described)
        store.log(self.parent, {f"untrained.{k}": v for k, v in untrained.items()})
        for run in self._left.values():
            if run.status == "RUNNING":
                store.finish(run.run_id, "KILLED", {"scd.reason": "its search was killed"})
        self._study = Study(plan)
        for index in sorted(self.outcomes):
            self._study.tell(self.outcomes[index], self.selected.get(index, {}))

    def start(self, trial: Trial) -> None:
        """Open the trial's run, or the one that an interrupted or failed attempt left."""
        if trial.index in self._runs:  # it waited at a rung
            return
        labels = self._labels | {
            "scd.identity": trial.identity,
            "scd.recipe_hash": trial.recipe.hash,
            "scd.seed": str(trial.recipe.seed),
            "scd.grid_index": str(trial.index),
            "scd.reason": "",
            "scd.pruned_by": "",
        }
        params = trial.recipe.symbols()
        if left := self._left.pop(trial.index, None):
            self._runs[trial.index] = left.run_id
            self._store.resume(left, labels, params)
        else:
            name = str(trial.point)
            if len(self.plan.seeds) > 1:
                name += f", seed {trial.recipe.seed}"
            run_id = self._store.create("trial", name, labels, params, self.parent)
            self._runs[trial.index] = run_id
            self._store.inputs(run_id, self.plan.data)
        self.outcomes.pop(trial.index, None)
        self._began[trial.index] = time.time()
        self.selected.setdefault(trial.index, {})

    def report(self, trial: Trial, report: Report) -> None:
        """Record a dev evaluation; a report of mere progress is not written."""
        if report.scores is None:
            return
        index, run_id = trial.index, self._runs[trial.index]
        selected = self.selected[index]
        # A resumed trial tells its evaluations again from the first; what lies behind is void.
        for step in [s for s in selected if s > report.step]:
            del selected[step]
        selected[report.step] = report.selected
        defined = {name: v for name, v in report.scores.items() if v is not None}
        self._scores.setdefault(index, {})[report.step] = defined
        if report.selected is not None:
            logged = self._logged.setdefault(index, {})
            if logged.get(report.step) == report.selected:
                return
            logged[report.step] = report.selected
        self._store.log(run_id, {**report.scores, **report.terms}, report.step)
        if undefined := [name for name, value in report.scores.items() if value is None]:
            text = f"{', '.join(undefined)} at step {report.step}"
            self._store.tag(run_id, {"scd.undefined": text})

    def complete(self, trial: Trial) -> Outcome:
        """Close a trial that ran to its end, with its best evaluation."""
        return self._settle(trial, "FINISHED", "", None)

    def prune(self, trial: Trial, rule: Rule, reason: str) -> Outcome:
        """Close a trial that ends early, with its best evaluation."""
        if trial.index not in self._runs:
            self.start(trial)
        return self._settle(trial, "PRUNED", reason, rule)

    def fail(
        self, trial: Trial, reason: str, detail: str = "", status: Status = "FAILED"
    ) -> Outcome:
        """Close a trial without a result: ``reason`` in a line, ``detail`` as a file."""
        if trial.index not in self._runs:  # its worker died before it began
            self.start(trial)
        run_id = self._runs.pop(trial.index)
        if detail:
            self._store.text(run_id, detail, "error.txt")
        self._store.finish(run_id, status, {"scd.reason": reason})
        self._left[trial.index] = self._store.get(run_id)
        ended = Outcome(
            trial,
            "KILLED" if status == "KILLED" else "FAILED",
            run_id,
            reason=reason,
            steps=max(self.selected[trial.index], default=0),
            seconds=(self._began[trial.index], time.time()),
        )
        self.outcomes[trial.index] = ended
        if status == "FAILED":
            self._study.tell(ended, self.selected[trial.index])
        return ended

    def close(self, status: Status) -> None:
        """Close every open run, and the search itself with ``status``."""
        for index in list(self._runs):
            self.fail(self.plan.trials[index], "interrupted", status="KILLED")
        for _, run in self._own_runs():
            if run.status == "RUNNING":  # a server made it and went away before it said so
                self._store.finish(run.run_id, "KILLED", {"scd.reason": "made twice"})
        tags = {}
        if best := next(iter(ranked(self.outcomes.values())), None):
            tags["scd.winner"] = json.dumps(best.point.symbols())
            self._store.log(self.parent, {f"best.{self.plan.metric}": best.mean})
        self._store.finish(self.parent, status, tags)

    def _own_runs(self) -> Iterator[tuple[int, RunInfo]]:
        """Runs of this search's trials, by grid index.

        The name alone does not tell: another home may have taken it at the same moment.
        """
        trials = self.plan.trials
        for run in self._store.find("trial", scd__search=self.plan.name):
            index = int(run.tags["scd.grid_index"])
            if index < len(trials) and trials[index].identity == run.tags["scd.identity"]:
                yield index, run

    def _settle(self, trial: Trial, status: str, reason: str, rule: Rule | None) -> Outcome:
        index, selected = trial.index, self.selected[trial.index]
        step = best_step(selected)
        if step is None:
            why = reason or f"no defined {self.plan.metric} in {len(selected)} evaluations"
            return self.fail(trial, why)
        run_id = self._runs.pop(index)
        scores = self._scores.get(index, {}).get(step) or self._read_scores(run_id, step)
        self._store.log(run_id, {f"{_BEST}{name}": v for name, v in scores.items()}, step)
        tags = {"scd.best_step": str(step), "scd.reason": reason, "scd.steps": str(max(selected))}
        if rule:  # MLflow has no word for it; FINISHED would pass it off as a whole training
            self._store.finish(run_id, "KILLED", tags | {"scd.pruned_by": rule})
        else:
            self._store.finish(run_id, "FINISHED", tags)
        self.outcomes[index] = Outcome(
            trial,
            "PRUNED" if rule else "FINISHED",
            run_id,
            step,
            selected[step],
            scores,
            reason,
            rule,
            max(selected),
            (self._began.get(index, time.time()), time.time()),
        )
        if rule:
            self._left[trial.index] = self._store.get(run_id)
        self._study.tell(self.outcomes[index], selected)
        self._scores.pop(index, None)
        self._logged.pop(index, None)
        return self.outcomes[index]

    def _read_scores(self, run_id: str, step: int) -> dict[str, float]:
        """Dev metrics that an earlier process recorded at a step."""
        names = [n for n in self._store.get(run_id).metrics if n.startswith("dev.")]
        found = {name: dict(self._store.history(run_id, name)).get(step) for name in names}
        return {name: value for name, value in found.items() if value is not None}


def _outcome_of(run: RunInfo, plan: Plan) -> Outcome | None:
    """A settled run as the outcome of the plan's trial that it is, if it is one."""
    trial = plan.find(point_of(run.params), run.tags.get("scd.identity", ""))
    rule = cast(Rule | None, run.tags.get("scd.pruned_by") or None)
    if trial is None or (run.status != "FINISHED" and not (run.status == "KILLED" and rule)):
        return None
    scores = {k.removeprefix(_BEST): v for k, v in run.metrics.items() if k.startswith(_BEST)}
    step = run.tags.get("scd.best_step")
    return Outcome(
        trial,
        "PRUNED" if rule else "FINISHED",
        run.run_id,
        int(step) if step else None,
        scores.get(plan.metric),
        scores,
        run.tags.get("scd.reason", ""),
        rule,
        int(run.tags.get("scd.steps", run.tags.get("scd.planned_steps", "0"))),
        (run.start_time / 1000, (run.end_time or run.start_time) / 1000),
    )
