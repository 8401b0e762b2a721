"""How a transfer task is scored on frozen features: folds, choice of the L2 strength, classifier.

"senteval-default" is the default of the SentEval toolkit (Conneau and Kiela, 2018), that of the
published tables, and gives the toolkit's own figures to the second decimal. "convex" has the same
folds and strengths, and in place of a classifier stopped early the optimum it is on the way to.

Whatever the protocol, the strength is chosen on inner folds or the dev split; the test part has no
say in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]

from scd_core.evaluation.classifier import Fit, Fitted, Schedule, fit_all, hold_out, predict
from scd_core.evaluation.labelled import FOLDS

ProtocolName = Literal["senteval-default", "convex"]
DEFAULT: ProtocolName = "senteval-default"
SEED = 1111
"""The toolkit's: of folds, first weights and batches."""
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2)
"""L2 strengths to choose from; of those that are equally good the first is taken."""
HELD_OUT = 0.05
"""Share of the training rows that ends the last training, where a task has no dev split."""
_ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class Examples:
    """A task as numbers."""

    features: np.ndarray
    """(rows, features) float32."""
    labels: np.ndarray
    """(rows,) int64 in [0, classes)."""
    rows: dict[str, np.ndarray]
    """Rows of each split: "all"; "train" and "test"; or "train", "dev" and "test"."""
    classes: int

    @property
    def test(self) -> np.ndarray:
        """Rows the score is over."""
        return self.rows["all" if "all" in self.rows else "test"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a protocol finds. Accuracies are x 100 and rounded to two decimals, as the toolkit does:
    each strength's and each test fold's mean before it is used further."""

    test: float
    dev: float
    """Of the chosen strength, on inner folds or the dev split."""
    strengths: tuple[float, ...]
    """The chosen one, of each outer fold where there are some."""
    predicted: np.ndarray
    """Class of each of ``Examples.test``."""


Fitter = Callable[[np.ndarray, np.ndarray, int, Sequence[Fit], int], list[Fitted]]
"""From features, labels, classes, fits and seed to what was fitted."""


@dataclass(frozen=True)
class Protocol:
    """How classifiers are made; folds and strengths are the same for all."""

    name: str
    fit: Fitter
    held_out: float
    """Share of the rows kept back where the last training has no dev rows of its own."""
    classifier: str
    """What it is, for the record of a run."""

    def settings(self, seed: int) -> dict[str, object]:
        """What a score stands on besides encoder and data, for the record of a run."""
        return {
            "protocol": self.name,
            "classifier": self.classifier,
            "strengths": list(STRENGTHS),
            "folds": FOLDS,
            "held_out": self.held_out,
            "seed": seed,
        }


def run(examples: Examples, protocol: Protocol, seed: int = SEED) -> Outcome:
    """Score the examples by whichever splits they have.

    The seed decides folds, first weights and batches, so other seeds show the spread that these
    make. (In the toolkit the folds of nested tasks stay at 1111 whatever the seed.)
    """
    task = _Task(examples, protocol, seed)
    return _nested(task) if "all" in examples.rows else _given(task)


@dataclass(frozen=True, eq=False)
class _Task:
    examples: Examples
    protocol: Protocol
    seed: int

    def fit(self, fits: Sequence[Fit]) -> list[Fitted]:
        data = self.examples
        return self.protocol.fit(data.features, data.labels, data.classes, fits, self.seed)

    def folds(self, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Train and test rows of each fold of these, every class spread evenly over them."""
        parts = StratifiedKFold(FOLDS, shuffle=True, random_state=self.seed)
        labels = self.examples.labels[rows]
        return [(rows[a], rows[b]) for a, b in parts.split(np.zeros(len(rows)), labels)]

    def last(self, rows: np.ndarray, strength: float) -> Fit:
        """The training with the chosen strength, on all that is not test."""
        return hold_out(rows, self.protocol.held_out, (strength,), self.seed)

    def test(self, rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Predicted classes and accuracy x 100 of test rows."""
        predicted = predict(self.examples.features[rows], weights)
        return predicted, _percent([float((predicted == self.examples.labels[rows]).mean())])


def _nested(task: _Task) -> Outcome:
    """Every row is a test row once; the strength of its fold is chosen on the other folds."""
    rows = task.examples.rows["all"]
    outer = task.folds(rows)
    fitted = task.fit([Fit(*part, STRENGTHS) for train, _ in outer for part in task.folds(train)])
    chosen = [_choose(fitted[i : i + FOLDS]) for i in range(0, len(fitted), FOLDS)]
    strengths = tuple(strength for strength, _ in chosen)
    final = task.fit([task.last(part[0], s) for part, s in zip(outer, strengths, strict=True)])
    predicted = np.empty(len(rows), dtype=np.int64)
    accuracies = []
    for (_, test), one in zip(outer, final, strict=True):
        predicted[test], accuracy = task.test(test, one.weights[0])
        accuracies.append(accuracy)
    return Outcome(_mean(accuracies), _mean(dev for _, dev in chosen), strengths, predicted)


def _given(task: _Task) -> Outcome:
    """Train and test are given; the strength is chosen on the dev split, or on folds of train."""
    rows = task.examples.rows
    if "dev" in rows:
        fitted = task.fit([Fit(rows["train"], rows["dev"], STRENGTHS)])
        strength, dev = _choose(fitted)
        # Trained once more with this strength, it would come out the same.
        weights = fitted[0].weights[STRENGTHS.index(strength)]
    else:
        folds = task.folds(rows["train"])
        strength, dev = _choose(task.fit([Fit(*part, STRENGTHS) for part in folds]))
        weights = task.fit([task.last(rows["train"], strength)])[0].weights[0]
    predicted, accuracy = task.test(rows["test"], weights)
    return Outcome(accuracy, dev, (strength,), predicted)


def _choose(folds: Sequence[Fitted]) -> tuple[float, float]:
    """The strength with the best mean over the folds, and that mean."""
    means = [_percent(fold.accuracy[i] for fold in folds) for i in range(len(STRENGTHS))]
    best = int(np.argmax(means))
    return STRENGTHS[best], means[best]


def _percent(shares: Iterable[float]) -> float:
    return float(np.round(100 * np.mean(list(shares)), 2))


def _mean(percents: Iterable[float]) -> float:
    return float(np.round(np.mean(list(percents)), 2))


def _fit_convex(
    features: np.ndarray, labels: np.ndarray, classes: int, fits: Sequence[Fit], seed: int
) -> list[Fitted]:
    """Nothing is drawn here, so ``seed`` changes nothing."""
    return [_optimum(features, labels, classes, fit) for fit in fits]


def _optimum(features: np.ndarray, labels: np.ndarray, classes: int, fit: Fit) -> Fitted:
    x, y = features[fit.train], labels[fit.train]
    # As the bias is not penalised, the optimum is the same; the solver gets there in a third or
    # less of the iterations.
    centre = x.mean(axis=0)
    x = x - centre
    weights = np.zeros((len(fit.strengths), classes, features.shape[1] + 1), dtype=np.float32)
    model = LogisticRegression(max_iter=_ITERATIONS, warm_start=True)
    # From strong to weak, so that each starts near its optimum.
    for i in sorted(range(len(fit.strengths)), key=lambda i: -fit.strengths[i]):
        # A strength s weighs s / 2 times the squared norm of one row of weights a class against the
        # mean loss. scikit-learn weighs the sum of losses with C, and with two classes has one row,
        # the difference of those two, whose squared norm is twice that of both.
        model.C = (2 if classes == 2 else 1) / (fit.strengths[i] * len(y))
        model.fit(x, y)
        rows = model.classes_[1:] if len(model.coef_) == 1 else model.classes_
        weights[i, rows, :-1] = model.coef_
        weights[i, rows, -1] = model.intercept_ - model.coef_ @ centre
        # A class that no training row has is never predicted.
        weights[i, np.setdiff1d(np.arange(classes), model.classes_), -1] = -np.inf
    right = [(predict(features[fit.dev], w) == labels[fit.dev]).sum() for w in weights]
    return Fitted(weights, np.array(right) / max(1, len(fit.dev)))


_S = Schedule()
PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "senteval-default",
            fit_all,
            HELD_OUT,
            f"softmax regression by Adam, lr {_S.lr:g}, batch {_S.batch}, epoch_size "
            f"{_S.epoch_size}, tenacity {_S.tenacity}, at most {_S.max_epochs} epochs",
        ),
        Protocol(
            "convex",
            _fit_convex,
            0.0,
            "softmax regression at its optimum, by scikit-learn's LogisticRegression; the bias is "
            "not penalised",
        ),
    )
}
"""By name."""
