"""Linear classifiers on fixed features, many of them trained at once.

The classifier of the SentEval toolkit (Conneau and Kiela, 2018, with its "pytorch" setting and no
hidden layer) is one linear layer under softmax cross-entropy, trained with Adam. A task needs
hundreds of them, which differ in their rows and in their L2 strength. As every one starts from the
same seed, those with equally many training rows draw the same batches of places; the four strengths
of a fold even share the rows. So a step of many classifiers is one batched product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_CACHE_BYTES = 4_000_000
"""What one step of all fits trained together may touch. With less, the fixed cost of torch's
operations shows; with more, the rows have left the cache when they are read the second time."""
_STATE = 4
"""Arrays of the weights' shape: they, their gradient and Adam's two moments."""
_FLOATS_A_LINE = 16
"""A row starts on a cache line of its own."""
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Schedule:
    """How one classifier is trained; the defaults are the toolkit's default classifier."""

    lr: float = 1e-3
    """Of Adam, whose other constants are the usual ones."""
    batch: int = 64
    epoch_size: int = 4
    """Passes over the training rows between two looks at the dev rows."""
    tenacity: int = 5
    """Looks without a new best that are forgiven, over the whole training; one more ends it."""
    max_epochs: int = 200
    """No further round of ``epoch_size`` passes is begun beyond it."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Classifiers to be trained on the same rows, one for each L2 strength."""

    train: np.ndarray
    """(n,) rows of the features, in the order that batches are drawn from."""
    dev: np.ndarray
    """(m,) rows whose accuracy ends the training and chooses the weights that are kept."""
    strengths: tuple[float, ...]
    """Weight decays: a strength s adds s/2 times the squared norm of weights and bias."""
    drawn: int = 0
    """Length of a permutation drawn before the first batch, as ``hold_out`` does; 0 for none."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The classifiers of one ``Fit``."""

    weights: np.ndarray
    """(strengths, classes, features + 1) float32; the last column is the bias."""
    accuracy: np.ndarray
    """(strengths,) share of dev rows that are right, in [0, 1]."""


def hold_out(rows: np.ndarray, share: float, strengths: tuple[float, ...], seed: int) -> Fit:
    """A fit on (n,) ``rows`` that keeps a random ``share`` of them for dev."""
    order = rows[np.random.RandomState(seed).permutation(len(rows))]
    held = int(share * len(rows))
    return Fit(order[held:], order[:held], strengths, drawn=len(rows))


def predict(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Classes (n,) of (n, features) under the (classes, features + 1) weights of one classifier."""
    return (features @ weights[:, :-1].T + weights[:, -1]).argmax(axis=1)


def fit_all(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    fits: Sequence[Fit],
    seed: int,
    schedule: Schedule | None = None,
) -> list[Fitted]:
    """Train every classifier of every fit; one result a fit, in order.

    Each classifier is what it would be if it were trained alone after seeding NumPy and torch with
    ``seed``: first weights, batches, early stopping and the weights kept are its own. Sums are
    taken in another order, so weights agree to float32, not to the bit. Runs on the CPU; a second
    thread helps little.

    Args:
        features: (rows, features) float32.
        labels: (rows,) integers in [0, classes).
        classes: Outputs of the layer.
        fits: Which rows train and which are dev, with which strengths.
        seed: Of first weights and batches.
        schedule: Default: the toolkit's.
    """
    schedule = schedule or Schedule()
    padded = _with_bias(features)
    targets = torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64))
    first = _first_weights(features.shape[1], classes, padded.shape[1], seed)
    width, row = features.shape[1] + 1, padded.shape[1] * padded.element_size()
    results: dict[int, Fitted] = {}
    for places in _alike(fits, schedule.batch, classes, row):
        trained = _train(padded, targets, first, [fits[i] for i in places], seed, schedule)
        for i, (weights, accuracy) in zip(places, trained, strict=True):
            results[i] = Fitted(weights[..., :width], accuracy)
    return [results[i] for i in range(len(fits))]


def _with_bias(features: np.ndarray) -> Tensor:
    """Features (rows, padded): a column of ones after them, then zeros to full cache lines."""
    rows, width = features.shape
    lines = -(-(width + 1) // _FLOATS_A_LINE)
    padded = torch.zeros(rows, lines * _FLOATS_A_LINE)
    padded[:, :width] = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    padded[:, width] = 1
    return padded


def _first_weights(width: int, classes: int, padded: int, seed: int) -> Tensor:
    """What a seeded ``torch.nn.Linear`` starts from, (classes, padded) with the bias as a column.

    The columns of zeros beyond it never change: their gradient is 0.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = torch.nn.Linear(width, classes)
    weights = torch.zeros(classes, padded)
    weights[:, :width] = layer.weight.detach()
    weights[:, width] = layer.bias.detach()
    return weights


def _alike(fits: Sequence[Fit], batch: int, classes: int, row: int) -> Iterator[list[int]]:
    """Places of fits that draw the same batches, as many at a time as the cache holds.

    ``row`` is the bytes of a row of features or weights.
    """
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i, fit in enumerate(fits):
        groups[len(fit.train), fit.drawn, len(fit.strengths)].append(i)
    for (_, _, strengths), places in groups.items():
        size = max(1, _CACHE_BYTES // ((batch + _STATE * classes * strengths) * row))
        for start in range(0, len(places), size):
            yield places[start : start + size]


def _train(
    features: Tensor,
    targets: Tensor,
    first: Tensor,
    fits: Sequence[Fit],
    seed: int,
    schedule: Schedule,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights (strengths, classes, padded) and accuracy (strengths,) of each of ``_alike`` fits."""
    draw = np.random.RandomState(seed)
    if fits[0].drawn:
        draw.permutation(fits[0].drawn)
    rows = torch.from_numpy(np.stack([fit.train for fit in fits]))  # (fits, n)
    adam = _Adam(first, [fit.strengths for fit in fits], schedule.lr)
    best = [_Best(fit, adam.weights[i], schedule.tenacity) for i, fit in enumerate(fits)]
    active = list(range(len(fits)))
    for _ in range(0, schedule.max_epochs + 1, schedule.epoch_size):
        for _ in range(schedule.epoch_size):
            order = rows[:, torch.from_numpy(draw.permutation(rows.shape[1]))]
            for chosen in order.split(schedule.batch, dim=1):  # (fits, batch)
                x = features.index_select(0, chosen.reshape(-1)).view(*chosen.shape, -1)
                _add_gradient(adam.decay(), x, targets[chosen], adam.weights)
                adam.step()
        for i, weights in zip(active, adam.weights, strict=True):
            best[i].look(weights, features, targets)
        going = [place for place, i in enumerate(active) if best[i].going.any()]
        if len(going) < len(active):
            active, rows = [active[place] for place in going], rows[going]
            adam.keep(going)
        if not active:
            break
    return [(one.weights.numpy(), one.accuracy) for one in best]


def _add_gradient(total: Tensor, x: Tensor, targets: Tensor, weights: Tensor) -> None:
    """Add to ``total`` the gradient of the mean cross-entropy by ``weights``.

    Both are (fits, strengths, classes, padded), ``x`` is (fits, batch, padded) and ``targets``
    (fits, batch).
    """
    fits, strengths, classes, padded = weights.shape
    batch, across = x.shape[1], x.transpose(1, 2)
    if classes == 2:
        # Only the difference of two outputs matters, and their gradients are opposite: half the
        # products, and these are what takes the time.
        logits = torch.bmm(weights[:, :, 1] - weights[:, :, 0], across)  # (fits, strengths, batch)
        errors = logits.sigmoid_().sub_(targets.unsqueeze(1)).div_(batch)
        of_one = torch.bmm(errors, x)
        total[:, :, 0].sub_(of_one)
        total[:, :, 1].add_(of_one)
        return
    logits = torch.bmm(weights.view(fits, -1, padded), across)  # (fits, strengths * classes, batch)
    errors = logits.view(fits, strengths, classes, batch).softmax(dim=2)
    right = torch.zeros(fits, classes, batch).scatter_(1, targets.unsqueeze(1), 1.0)
    errors.sub_(right.unsqueeze(1)).div_(batch)
    total.view(fits, -1, padded).baddbmm_(errors.view(fits, -1, batch), x)


class _Adam:
    """Adam with coupled weight decay, over (fits, strengths, classes, padded) in lockstep."""

    def __init__(self, first: Tensor, strengths: Sequence[Sequence[float]], lr: float) -> None:
        self.strengths = torch.tensor(strengths, dtype=torch.float32)[:, :, None, None]
        shape = (*self.strengths.shape[:2], *first.shape)
        # ``contiguous`` would not copy for a single classifier, and ``first`` is every other's too.
        self.weights = first.expand(shape).clone(memory_format=torch.contiguous_format)
        self.gradient = torch.empty(shape)
        self.mean = torch.zeros(shape)
        self.square = torch.zeros(shape)
        self.lr, self.steps = lr, 0

    def decay(self) -> Tensor:
        """Start a step: the part of the gradient that the L2 term has, to add the rest to."""
        return torch.mul(self.weights, self.strengths, out=self.gradient)

    def step(self) -> None:
        """Change the weights by the gradient, which is used up."""
        self.steps += 1
        self.mean.lerp_(self.gradient, 1 - _BETA_1)
        self.square.mul_(_BETA_2).addcmul_(self.gradient, self.gradient, value=1 - _BETA_2)
        # The corrections of both moments are moved into epsilon and the step's size.
        root = (1 - _BETA_2**self.steps) ** 0.5
        scale = torch.sqrt(self.square, out=self.gradient).add_(_EPSILON * root)
        size = self.lr * root / (1 - _BETA_1**self.steps)
        self.weights.addcdiv_(self.mean, scale, value=-size)

    def keep(self, fits: list[int]) -> None:
        """Go on with these fits only."""
        for name in ("strengths", "weights", "gradient", "mean", "square"):
            setattr(self, name, getattr(self, name)[fits])


class _Best:
    """The best weights so far of a fit's classifiers, and which of them are still trained."""

    def __init__(self, fit: Fit, weights: Tensor, tenacity: int) -> None:
        strengths = len(fit.strengths)
        self.dev = torch.from_numpy(fit.dev)
        self.weights = weights.clone()
        self.right = np.full(strengths, -1)
        self.misses = np.zeros(strengths, dtype=int)
        self.going = np.ones(strengths, dtype=bool)
        self.tenacity = tenacity

    @property
    def accuracy(self) -> np.ndarray:
        """(strengths,) share of dev rows that are right."""
        return self.right / max(1, len(self.dev))

    def look(self, weights: Tensor, features: Tensor, targets: Tensor) -> None:
        """Keep what is better on dev; a classifier ends with the miss after ``tenacity`` others."""
        strengths, classes, padded = weights.shape
        logits = features[self.dev] @ weights.view(-1, padded).T
        guesses = logits.view(-1, strengths, classes).argmax(dim=2)  # (dev, strengths)
        right = (guesses == targets[self.dev].unsqueeze(1)).sum(dim=0).numpy()
        better = self.going & (right > self.right)
        self.right[better] = right[better]
        self.weights[torch.from_numpy(better)] = weights[torch.from_numpy(better)]
        missed = self.going & ~better
        self.misses[missed] += 1
        self.going &= self.misses <= self.tenacity
