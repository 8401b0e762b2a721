"""What a search's results say beyond their ranking: pure functions of outcomes."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import optuna

from search.outcome import Outcome
from search.plan import Plan
from search.space import Point, Space, canonical
from search.study import as_trial

SYMBOLS = ("alpha", "lambda", "r_A", "r_B")
_FIELDS = {"alpha": "alpha", "lambda": "lam", "r_A": "r_a", "r_B": "r_b"}
_REACH = {"alpha": "alpha", "lambda": "lam", "r_A": "rate", "r_B": "rate"}


def expected_best(scores: Sequence[float]) -> list[float]:
    """Expected best of n = 1, 2, ... trials drawn from these, each at most once.

    The curve of Dodge et al. 2019 ("Show Your Work"), for draws without replacement: a search that
    had stopped after n trials would have found so much on average. Its last value is the maximum.
    """
    ordered, count = sorted(scores), len(scores)
    return [
        math.fsum(
            score * math.comb(rank, n - 1) / math.comb(count, n)
            for rank, score in enumerate(ordered)
        )
        for n in range(1, count + 1)
    ]


@dataclass(frozen=True)
class Edge:
    """The winner lies at the end of a setting's values: better ones may lie beyond."""

    symbol: str
    value: float
    side: str
    """lowest or highest."""
    flags: str
    """That add values beyond, to the search's command."""

    def __str__(self) -> str:
        return (
            f"{self.symbol} = {self.value:g} is the {self.side} of its values; better ones may lie "
            "beyond"
        )


def edges(plan: Plan, winner: Point) -> list[Edge]:
    """Settings in which the winner lies at an end of the grid that can be moved.

    A setting with one value is fixed, not searched; below a rate of 0 there is nothing.
    """
    found = []
    for symbol, field in _FIELDS.items():
        values, value = getattr(plan.space, field), getattr(winner, field)
        if len(values) < 2 or value not in (values[0], values[-1]):
            continue
        low = value == values[0]
        beyond = _beyond(symbol, plan.space, low)
        if not beyond and low and plan.stage == "coarse":
            least = plan.space.r_a[0] if symbol == "r_B" else 0.0
            beyond = [canonical((least + value) / 2)] if value > least else []
        if not beyond:
            continue
        if plan.stage == "coarse":
            wider = sorted({*values, *beyond})
            flags = f"--space.{field.replace('_', '-')} {' '.join(f'{v:g}' for v in wider)}"
        else:
            name = _REACH[symbol]
            flags = f"--around.{name}-reach {len(values)}"
        found.append(Edge(symbol, value, "lowest" if low else "highest", flags))
    return found


def _beyond(symbol: str, space: Space, low: bool) -> list[float]:
    """Up to two values beyond an end, at the distance (lambda: the ratio) of the last two there.

    Only such as a point of the grid can have: alpha and lambda above 0, rates in [0, 1) with
    r_A < r_B.
    """
    values = getattr(space, _FIELDS[symbol])
    last, next_one = (values[0], values[1]) if low else (values[-1], values[-2])
    if symbol == "lambda" and next_one > 0:
        made = [last * (last / next_one) ** n for n in (1, 2)]
    else:
        made = [last + n * (last - next_one) for n in (1, 2)]
    allowed: dict[str, Callable[[float], bool]] = {
        "r_A": lambda v: 0 <= v < space.r_b[-1],
        "r_B": lambda v: space.r_a[0] < v < 1,
    }
    fits = allowed.get(symbol, lambda v: v > 0)
    return [v for v in map(canonical, made) if fits(v)]


def importance(plan: Plan, outcomes: Sequence[Outcome]) -> dict[str, float] | None:
    """Share of the score's variance that each setting explains (fANOVA, Hutter et al. 2014).

    Of whole trainings only, since a pruned one's score is of another step. None with fewer than
    four of them, or where their scores are all one.
    """
    whole = [o for o in outcomes if o.whole]
    if len(whole) < 4 or len({o.score for o in whole}) < 2:
        return None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    for outcome in whole:
        finished = dataclasses.replace(outcome, status="FINISHED")
        study.add_trial(as_trial(finished, {}, plan.space))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {symbol: found.get(symbol, 0.0) for symbol in SYMBOLS}


def best_by(
    means: Mapping[Point, float], first: str, second: str
) -> dict[tuple[float, float], float]:
    """The best mean score at each pair of values of two settings, over all others."""
    found: dict[tuple[float, float], float] = {}
    for point, mean in means.items():
        symbols = point.symbols()
        cell = symbols[first], symbols[second]
        found[cell] = max(mean, found.get(cell, -math.inf))
    return found


@dataclass(frozen=True)
class Confirmation:
    """The winner trained again on seeds that took no part in its choice."""

    searched: float
    """Its mean dev score in the search."""
    outcomes: tuple[Outcome, ...]

    @property
    def scores(self) -> list[float]:
        """Dev scores of the fresh seeds."""
        return [o.score for o in self.outcomes if o.whole and o.score is not None]

    def __str__(self) -> str:
        scores = self.scores
        if not scores:
            return "the winner could not be trained again on a fresh seed"
        mean = math.fsum(scores) / len(scores)
        return (
            f"the winner on {len(scores)} fresh seed{'s' if len(scores) > 1 else ''}: {mean:.2f} "
            f"({' '.join(f'{s:.2f}' for s in scores)}); the search's own score, "
            f"{self.searched:.2f}, differs by {self.searched - mean:+.2f}"
        )
