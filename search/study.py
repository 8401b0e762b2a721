"""The search in Optuna: one study per search, one trial per result, for dashboards and importance.

A trial is added whole when it has ended, so that a killed process leaves none behind that waits or
runs. What is proposed next does not come from here (``search.proposals``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from scd_core import places
from search.outcome import Outcome
from search.plan import Plan
from search.space import Point, Space

_LOCK_SECONDS = 60  # SQLite waits so long for another writer before it gives up
_STATES = {
    "FINISHED": TrialState.COMPLETE,
    "PRUNED": TrialState.PRUNED,
    "FAILED": TrialState.FAIL,
}


def optuna_url() -> str:
    """Address of the Optuna storage: one absolute place, whatever the working directory."""
    return f"sqlite:///{places.home() / 'optuna.db'}"


class Study:
    """Writes a search's results to Optuna, each once."""

    def __init__(self, plan: Plan) -> None:
        """Open the study of the plan's name, or make it.

        Raises:
            ValueError: another search has that name.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = optuna.storages.RDBStorage(
            optuna_url(), engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}
        )
        self._study = optuna.create_study(
            storage=storage, study_name=plan.name, direction="maximize", load_if_exists=True
        )
        owner = self._study.user_attrs.get("identity", plan.identity)
        if owner != plan.identity:
            raise ValueError(
                f"the name {plan.name} belongs to another search in {optuna_url()}; choose another "
                "--name"
            )
        self._study.set_user_attr("identity", plan.identity)
        self._space = plan.space
        self._told = {
            (t.user_attrs.get("identity"), t.state) for t in self._study.get_trials(deepcopy=False)
        }

    def tell(self, outcome: Outcome, selected: Mapping[int, float | None]) -> None:
        """Add a result; a finished or pruned one that is there already is not added again.

        Args:
            selected: Ranking dev score by step.
        """
        trial = as_trial(outcome, selected, self._space)
        key = (outcome.trial.identity, trial.state)
        if trial.state != TrialState.FAIL and key in self._told:
            return
        self._study.add_trial(trial)
        self._told.add(key)


def as_trial(outcome: Outcome, selected: Mapping[int, float | None], space: Space) -> FrozenTrial:
    """An outcome in Optuna's form; a pruned one has its best evaluation as its value.

    Args:
        selected: Ranking dev score by step.
    """
    made = create_trial(
        state=_STATES[outcome.status],
        value=outcome.score,
        params=dict(outcome.trial.point.symbols()),
        distributions=distributions(space),
        user_attrs={
            "identity": outcome.trial.identity,
            "seed": outcome.trial.recipe.seed,
            "best_step": outcome.step,
            "reason": outcome.reason,
            "mlflow_run": outcome.run_id,
        },
        intermediate_values={s: v for s, v in sorted(selected.items()) if v is not None},
    )
    if outcome.seconds:
        began, ended = map(datetime.fromtimestamp, outcome.seconds)
        made.datetime_start, made.datetime_complete = began, ended
    return made


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Ranges of the space by symbol; lambda on a logarithmic scale, its values being magnitudes."""
    values = (space.alpha, space.lam, space.r_a, space.r_b)
    low, high = (Point(*map(bound, values)).symbols() for bound in (min, max))
    return {
        name: FloatDistribution(low[name], high[name], log=name == "lambda" and low[name] > 0)
        for name in low
    }
