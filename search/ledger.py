"""The search's books: the one writer of MLflow and Optuna, so that no two disagree or collide.

MLflow is the truth: a trial is done when its run is FINISHED there, and Optuna is told after it.
What an earlier process left open is closed before anything starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

from scd_core import places
from scd_core.tracking import RunInfo, Status, Tracking
from search.outcome import Outcome, best_step
from search.plan import Plan, Trial
from search.space import Point, Space, point_of
from search.trial import Report

_LOCK_SECONDS = 60  # SQLite waits so long for another writer before it gives up


def optuna_url() -> str:
    """Address of the Optuna storage: one absolute place, whatever the working directory."""
    return f"sqlite:///{places.home() / 'optuna.db'}"


def read_finished(plan: Plan, store: Tracking) -> dict[int, Outcome]:
    """The plan's trials that MLflow holds as finished, by grid index, whichever search ran them."""
    known = {trial.identity: trial for trial in plan.trials}
    found: dict[int, Outcome] = {}
    runs = store.find("trial", scd__data_fingerprint=plan.data_fingerprint)
    for run in sorted(runs, key=lambda r: (r.tags.get("scd.search") != plan.name, r.start_time)):
        trial = known.get(run.tags.get("scd.identity", ""))
        if trial is None or run.status != "FINISHED" or trial.index in found:
            continue
        found[trial.index] = _outcome_of(run, trial, plan.metric)
    return found


def refuse_another(plan: Plan) -> None:
    """Check that the plan's name is free or means this very search.

    Raises:
        ValueError: another search has that name; says what differs.
    """
    path = plan.folder / "search.json"
    if not path.is_file():
        return
    there = json.loads(path.read_text(encoding="utf-8"))
    differing = [
        f"{name} was {there.get(name)}, now {value}"
        for name, value in plan.description.items()
        if there.get(name) != value
    ]
    if differing:
        raise ValueError(
            f"--name {plan.name} belongs to another search ({path}): {'; '.join(differing)}. "
            "Choose another --name; points that both have are run once and shared"
        )


class Ledger:
    """Proposes trials through Optuna and records what becomes of them in MLflow and Optuna.

    Not for two processes at once on one search: the runner holds a lock.
    """

    def __init__(self, plan: Plan, store: Tracking) -> None:
        """Open the books of ``plan``, refusing those of another search of that name."""
        refuse_another(plan)
        self.plan, self._store = plan, store
        self.outcomes = read_finished(plan, store)
        self._pending = [t for t in plan.trials if t.index not in self.outcomes]
        self._by_point = {trial.point: trial for trial in plan.trials}
        self._distributions = _distributions(plan.space)
        self._asked: dict[int, optuna.Trial] = {}
        self._runs: dict[int, str] = {}
        self._selected: dict[int, dict[int, float | None]] = {}
        self._scores: dict[int, dict[int, dict[str, float]]] = {}
        self._fresh: set[int] = set()

    @property
    def pending(self) -> int:
        """Trials not finished."""
        return len(self.plan.trials) - len([o for o in self.outcomes.values() if o.valid])

    @property
    def settled(self) -> bool:
        """Whether every trial is finished and the search itself is written down as such."""
        runs = self._store.find("search", scd__identity=self.plan.identity)
        return not self.pending and any(run.status == "FINISHED" for run in runs)

    def open(self, untrained: Mapping[str, float | None]) -> None:
        """Write the search down, and close what a killed process left open under its name.

        Args:
            untrained: Dev scores of the encoder before training, by metric name.
        """
        plan = self.plan
        plan.folder.mkdir(parents=True, exist_ok=True)
        (plan.folder / "search.json").write_text(
            json.dumps({"name": plan.name, **plan.description}, indent=2) + "\n", encoding="utf-8"
        )
        labels = {"scd.identity": plan.identity, "scd.search": plan.name, "scd.stage": plan.stage}
        self._labels = {**plan.tags, **labels}
        params = {name: plan.description[name] for name in plan.description if "space." in name}
        self._parent = self._store.start("search", plan.name, self._labels, params)
        self._store.inputs(self._parent, plan.data)
        self._store.text(self._parent, plan.recipe.to_toml(), "recipe.toml")
        self._store.log(self._parent, {f"untrained.{k}": v for k, v in untrained.items()})
        for run in self._store.find("trial", scd__search=plan.name):
            if run.status == "RUNNING" and run.tags.get("mlflow.parentRunId") == self._parent:
                self._store.finish(run.run_id, "KILLED")
        self._study = _study(plan)
        self._complete = {
            t.user_attrs.get("identity")
            for t in self._study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
        }
        for outcome in self.outcomes.values():
            self._adopt(outcome)

    def propose(self) -> Trial | None:
        """The next trial of the grid, asked of Optuna; None when all are under way."""
        if not self._pending:
            return None
        trial = self._pending.pop(0)
        if trial.identity in self._complete:  # known to Optuna, lost to MLflow: run it, tell no one
            return trial
        self._study.enqueue_trial(trial.point.symbols(), {"identity": trial.identity})
        asked = self._study.ask(self._distributions)
        proposed = self._by_point[point_of(asked.params)]
        self._asked[proposed.index] = asked
        return proposed

    def start(self, trial: Trial) -> None:
        """Open the trial's run, or the one that an interrupted or failed attempt left."""
        labels = self._labels | {
            "scd.identity": trial.identity,
            "scd.recipe_hash": trial.recipe.hash,
            "scd.grid_index": str(trial.index),
        }
        run_id = self._store.start(
            "trial", str(trial.point), labels, trial.recipe.symbols(), self._parent
        )
        self._store.inputs(run_id, self.plan.data)
        self._runs[trial.index] = run_id
        self._fresh.add(trial.index)
        scores: dict[int, dict[str, float]] = {}
        for name in self._store.get(run_id).metrics:
            if name.startswith("dev."):
                for step, value in self._store.history(run_id, name):
                    scores.setdefault(step, {})[name] = value
        self._scores[trial.index] = scores
        self._selected[trial.index] = {s: v.get(self.plan.metric) for s, v in scores.items()}

    def report(self, trial: Trial, report: Report) -> None:
        """Record a dev evaluation; a report of mere progress is not written."""
        index, selected = trial.index, self._selected[trial.index]
        if index in self._fresh:
            # An earlier attempt's evaluations count up to where this one goes on.
            self._fresh.discard(index)
            for step in [s for s in selected if s >= report.step]:
                del selected[step], self._scores[index][step]
        if report.scores is None:
            return
        run_id = self._runs[index]
        self._store.log(run_id, {**report.scores, **report.terms}, report.step)
        if undefined := [name for name, value in report.scores.items() if value is None]:
            text = f"{', '.join(undefined)} at step {report.step}"
            self._store.tag(run_id, {"scd.undefined": text})
        selected[report.step] = report.selected
        defined = {name: v for name, v in report.scores.items() if v is not None}
        self._scores[index][report.step] = defined
        if index in self._asked and report.selected is not None:
            self._asked[index].report(report.selected, report.step)

    def complete(self, trial: Trial) -> Outcome:
        """Close a trial that ran to its end, with its best evaluation."""
        selected = self._selected[trial.index]
        step = best_step(selected)
        if step is None:
            return self.fail(trial, f"no defined {self.plan.metric} in {len(selected)} evaluations")
        scores, score = self._scores[trial.index][step], selected[step]
        run_id = self._runs.pop(trial.index)
        self._store.log(run_id, {f"best.{name}": value for name, value in scores.items()}, step)
        self._store.finish(run_id, "FINISHED", {"scd.best_step": str(step), "scd.reason": ""})
        self.outcomes[trial.index] = Outcome(trial, "FINISHED", run_id, step, score, scores)
        if asked := self._asked.pop(trial.index, None):
            asked.set_user_attr("best_step", step)
            self._study.tell(asked, score, TrialState.COMPLETE)
        return self.outcomes[trial.index]

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
        self.outcomes[trial.index] = Outcome(trial, status, run_id, reason=reason)
        if asked := self._asked.pop(trial.index, None):
            asked.set_user_attr("reason", reason)
            self._study.tell(asked, state=TrialState.FAIL)
        return self.outcomes[trial.index]

    def close(self, interrupted: bool) -> None:
        """Close every open run and the search itself; FINISHED only when all its trials are."""
        for index in list(self._runs):
            self.fail(self.plan.trials[index], "interrupted", status="KILLED")
        for asked in self._asked.values():
            self._study.tell(asked, state=TrialState.FAIL)
        self._asked.clear()
        unfinished: Status = "KILLED" if interrupted else "FAILED"
        self._store.finish(self._parent, unfinished if self.pending else "FINISHED")

    def _adopt(self, outcome: Outcome) -> None:
        """Let Optuna know a result that it has not been told: shared, or lost to a kill."""
        trial = outcome.trial
        if trial.identity not in self._complete and outcome.score is not None:
            self._study.add_trial(
                create_trial(
                    state=TrialState.COMPLETE,
                    value=outcome.score,
                    params=dict(trial.point.symbols()),
                    distributions=self._distributions,
                    user_attrs={"identity": trial.identity, "best_step": outcome.step},
                )
            )


def _study(plan: Plan) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.RDBStorage(
        optuna_url(), engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}
    )
    study = optuna.create_study(
        storage=storage,
        sampler=optuna.samplers.RandomSampler(plan.recipe.seed),
        study_name=plan.name,
        direction="maximize",
        load_if_exists=True,
    )
    owner = study.user_attrs.setdefault("identity", plan.identity)
    if owner != plan.identity:
        raise ValueError(
            f"--name {plan.name} belongs to another search in {optuna_url()}; choose another --name"
        )
    study.set_user_attr("identity", plan.identity)
    # The lock says that no process runs this search, so what is open was left by a dead one.
    while study.get_trials(deepcopy=False, states=[TrialState.WAITING]):
        study.tell(study.ask(), state=TrialState.FAIL)
    for left in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        study.tell(left.number, state=TrialState.FAIL)
    return study


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    """Ranges of the space by symbol; lambda on a logarithmic scale, its values being magnitudes."""
    low, high = (Point(*(bound(v) for v in _values(space))).symbols() for bound in (min, max))
    return {
        name: FloatDistribution(low[name], high[name], log=name == "lambda" and low[name] > 0)
        for name in low
    }


def _values(space: Space) -> list[tuple[float, ...]]:
    return [space.alpha, space.lam, space.r_a, space.r_b]


def _outcome_of(run: RunInfo, trial: Trial, metric: str) -> Outcome:
    scores = {k.removeprefix("best."): v for k, v in run.metrics.items() if k.startswith("best.")}
    step = run.tags.get("scd.best_step")
    return Outcome(
        trial, run.status, run.run_id, int(step) if step else None, scores.get(metric), scores
    )
