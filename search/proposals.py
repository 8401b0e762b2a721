"""Which trial of the grid begins next: all in order, in random order, or where TPE expects most."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Protocol

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from search.plan import Plan
from search.space import Point

_DRAWS = 100  # of TPE, before a point is taken at random


class Proposals(Protocol):
    """Proposes trials by grid index, each once."""

    def next(self, known: Mapping[int, float | None], running: set[int]) -> int | None:
        """The next trial that is in neither; None where none is left.

        Args:
            known: Trials with a result, or with a score to compare them by; None without one.
            running: Trials without a score so far.
        """
        ...


def proposals(plan: Plan) -> Proposals:
    """What the plan's sampler proposes."""
    if plan.sampler == "tpe":
        return Tpe(plan)
    order = list(range(len(plan.space.points)))
    if plan.sampler == "random":
        random.Random(plan.seeds[0]).shuffle(order)
    seeds = range(len(plan.seeds))
    return Listed(i * len(seeds) + seed for i in order for seed in seeds)


class Listed:
    """Trials in an order that is known before.

    What a random search proposes after its n-th trial does not depend on how often it was resumed:
    its trials are the first of one shuffled list.
    """

    def __init__(self, order: Iterator[int]) -> None:
        self._order = iter(order)

    def next(self, known: Mapping[int, float | None], running: set[int]) -> int | None:
        """The next in the list."""
        return next((i for i in self._order if i not in known and i not in running), None)


class Tpe:
    """Tree-structured Parzen estimator (Bergstra et al. 2011) over the places of the grid.

    It is told every known result before it draws, so a resumed search knows what the first one
    knew. It draws alpha, lambda, r_A and r_B freely; what is not allowed (r_A >= r_B) or tried
    already is drawn again, without a trace in the study that is kept.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        space = plan.space
        self._values = {
            "alpha": space.alpha,
            "lambda": space.lam,
            "r_A": space.r_a,
            "r_B": space.r_b,
        }
        self._places: dict[str, IntDistribution | CategoricalDistribution] = {
            name: IntDistribution(0, len(values) - 1) for name, values in self._values.items()
        }

    def next(self, known: Mapping[int, float | None], running: set[int]) -> int | None:
        """A draw; the seeds of a point come one after another."""
        plan, seeds = self._plan, len(self._plan.seeds)
        taken = known.keys() | running
        begun = {index // seeds for index in taken}
        for place in sorted(begun):
            for index in range(place * seeds, (place + 1) * seeds):
                if index not in taken:
                    return index
        if len(begun) == len(plan.space.points):
            return None
        # Another seed at every call, or a resumed search would repeat its first draws.
        study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=plan.seeds[0] + 1000 * len(begun)),
        )
        for index in sorted(taken):
            study.add_trial(self._told(index, known.get(index), index in known))
        for _ in range(_DRAWS):
            drawn = study.ask(dict(self._places))
            values = (self._values[name][place] for name, place in drawn.params.items())
            found = plan.space.place.get(Point(*values))
            if found is not None and found not in begun:
                return found * seeds
            study.tell(drawn, state=TrialState.FAIL)
        left = sorted(set(range(len(plan.space.points))) - begun)
        return random.Random(plan.seeds[0] + len(begun)).choice(left) * seeds

    def _told(self, index: int, score: float | None, ended: bool) -> optuna.trial.FrozenTrial:
        symbols = self._plan.trials[index].point.symbols()
        state = TrialState.RUNNING
        if ended:
            state = TrialState.FAIL if score is None else TrialState.COMPLETE
        return create_trial(
            state=state,
            value=score,
            params={name: self._values[name].index(symbols[name]) for name in symbols},
            distributions=dict(self._places),
        )
