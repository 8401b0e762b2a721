"""Transfer tasks, all classifiers at once against one after another, in one run.

    python benchmarks/transfer.py --tasks cr mrpc trec --data-dir data

The sequential side is the protocol written plainly, with torch's own layer, loss and optimiser; it
shares with the other side only the features. Both run in ``--threads`` threads, and encoding is not
part of the times. With ``--outer-folds`` the sequential side of a nested task is trained for some
of its ten outer folds only, and its times and steps are multiplied to ten.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import StratifiedKFold

from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.classifier import Schedule
from scd_core.evaluation.labelled import FOLDS, TRANSFER, TransferData, load_transfer
from scd_core.evaluation.protocols import (
    HELD_OUT,
    PROTOCOLS,
    SEED,
    STRENGTHS,
    Examples,
    Outcome,
    run,
)
from scd_core.evaluation.transfer import prepare
from scd_core.models import model_fingerprint, model_folder
from scd_core.pooling import Pooling

T = TypeVar("T")


@dataclass
class Alone:
    """One classifier, trained by itself."""

    layer: torch.nn.Linear
    dev: float
    """Best share of dev rows right, in [0, 1]."""
    steps: int = 0
    """Of the whole training, beyond the best weights too."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Classes (n,) of (n, features)."""
        with torch.no_grad():
            return self.layer(torch.from_numpy(x)).argmax(1).numpy()

    def accuracy(self, x: np.ndarray, y: np.ndarray) -> float:
        """Share of (n,) right, in [0, 1]."""
        return float((self.predict(x) == y).mean())


def train_alone(
    x: np.ndarray,
    y: np.ndarray,
    classes: int,
    strength: float,
    seed: int,
    dev: tuple[np.ndarray, np.ndarray] | None = None,
    schedule: Schedule | None = None,
) -> Alone:
    """Train on (n, features) and (n,); without ``dev``, a share of them is held out for it."""
    schedule = schedule or Schedule()
    np.random.seed(seed)
    torch.manual_seed(seed)
    layer = torch.nn.Linear(x.shape[1], classes)
    adam = torch.optim.Adam(layer.parameters(), lr=schedule.lr, weight_decay=strength)
    if dev is None:
        order = np.random.permutation(len(x))
        held = int(HELD_OUT * len(x))
        dev = x[order[:held]], y[order[:held]]
        x, y = x[order[held:]], y[order[held:]]
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    best, misses, epochs, steps = Alone(layer, -1.0), 0, 0, 0
    while misses <= schedule.tenacity and epochs <= schedule.max_epochs:
        for _ in range(schedule.epoch_size):
            order = torch.from_numpy(np.random.permutation(len(x)))
            for rows in order.split(schedule.batch):
                loss = torch.nn.functional.cross_entropy(layer(inputs[rows]), targets[rows])
                adam.zero_grad()
                loss.backward()
                adam.step()
                steps += 1
        epochs += schedule.epoch_size
        accuracy = Alone(layer, 0.0).accuracy(*dev)
        if accuracy > best.dev:
            best = Alone(copy.deepcopy(layer), accuracy)
        else:
            misses += 1
    best.steps = steps
    return best


def sequential(
    data: Examples, seed: int = SEED, outer_folds: int | None = None
) -> tuple[Outcome, int]:
    """The default protocol, one classifier after another; what it finds, and its steps.

    With ``outer_folds``, a nested task ends after so many; the class of what is in none is -1.
    """
    return _nested(data, seed, outer_folds) if "all" in data.rows else _given(data, seed)


def _folds(y: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(y, y))


def _search(
    x: np.ndarray,
    y: np.ndarray,
    splits: Sequence[tuple[np.ndarray, np.ndarray]],
    classes: int,
    seed: int,
) -> tuple[float, float, int]:
    """Best strength over the splits, its accuracy x 100, and the steps it took to find."""
    means, steps = [], 0
    for strength in STRENGTHS:
        accuracies = []
        for train, dev in splits:
            one = train_alone(x[train], y[train], classes, strength, seed, (x[dev], y[dev]))
            accuracies.append(one.accuracy(x[dev], y[dev]))
            steps += one.steps
        means.append(round(100 * np.mean(accuracies), 2))
    best = int(np.argmax(means))
    return STRENGTHS[best], float(means[best]), steps


def _nested(data: Examples, seed: int, outer_folds: int | None) -> tuple[Outcome, int]:
    x, y, classes = data.features, data.labels, data.classes
    predicted = np.full_like(y, -1)
    devs, tests, strengths, steps = [], [], [], 0
    for train, test in _folds(y, seed)[:outer_folds]:
        strength, dev, taken = _search(x[train], y[train], _folds(y[train], seed), classes, seed)
        last = train_alone(x[train], y[train], classes, strength, seed)
        predicted[test] = last.predict(x[test])
        tests.append(round(100 * last.accuracy(x[test], y[test]), 2))
        devs.append(dev)
        strengths.append(strength)
        steps += taken + last.steps
    mean_test, mean_dev = round(np.mean(tests), 2), round(np.mean(devs), 2)
    return Outcome(float(mean_test), float(mean_dev), tuple(strengths), predicted), steps


def _given(data: Examples, seed: int) -> tuple[Outcome, int]:
    x, y, classes, rows = data.features, data.labels, data.classes, data.rows
    train, test = rows["train"], rows["test"]
    splits, dev_data = _folds(y[train], seed), None
    if "dev" in rows:
        splits, dev_data = [(train, rows["dev"])], (x[rows["dev"]], y[rows["dev"]])
    strength, dev, steps = _search(x, y, splits, classes, seed)
    last = train_alone(x[train], y[train], classes, strength, seed, dev_data)
    accuracy = round(100 * last.accuracy(x[test], y[test]), 2)
    return Outcome(accuracy, dev, (strength,), last.predict(x[test])), steps + last.steps


@dataclass(frozen=True)
class Command:
    """Times both ways on real data and compares what they find."""

    data_dir: Path | None = None
    """Folder that holds senteval/; default $SCD_DATA_DIR, then the Hub."""
    model: str = "bundled"
    pooling: Pooling = "cls"
    tasks: tuple[str, ...] = tuple(task.name for task in TRANSFER)
    threads: int = 1
    """Of both ways."""
    seed: int = SEED
    sequential: bool = True
    """Also run one classifier after another: an hour or more for all tasks."""
    outer_folds: int = FOLDS
    """Outer folds that it is run for, where a task has them."""
    convex: bool = False
    """Also time the protocol "convex"."""
    vectors: Path | None = None
    """Folder to keep the encoded sentences in, for the next run."""


def main(command: Command) -> None:
    """Run every task both ways, print a line for each as it ends, and a table."""
    console = Console(width=110)
    torch.set_num_threads(command.threads)
    table = Table(title=f"{command.model}, {command.pooling}, {command.threads} thread(s)")
    columns = (
        "task",
        "way",
        "dev",
        "test",
        "seconds",
        "CPU seconds",
        "steps",
        "factor",
        "CPU",
        "=",
    )
    for name in columns:
        table.add_column(name, justify="left" if name in ("task", "way") else "right")
    totals: dict[str, np.ndarray] = {}

    def add(*line: str) -> None:
        console.print(" ".join(f"{cell:>11}" for cell in line))
        table.add_row(*line)

    declared = [task for task in TRANSFER if task.name in command.tasks]
    for data in load_transfer(command.data_dir, declared):
        examples = prepare(data, partial(_vectors, command, data))
        base: tuple[Outcome, np.ndarray] | None = None
        for way, work in _ways(command, examples):
            (outcome, steps), *times = _timed(work)
            spent, scores = np.array(times), (f"{outcome.dev:.2f}", f"{outcome.test:.2f}")
            base = base or (outcome, spent)
            done = outcome.predicted >= 0
            if not done.all():
                scores = (f"{command.outer_folds} of {FOLDS} folds", "")
                spent, steps = (whole * FOLDS / command.outer_folds for whole in (spent, steps))
            totals[way] = totals.get(way, np.zeros(2)) + spent
            same = (outcome.predicted == base[0].predicted)[done].mean()
            counted = f"{steps:.0f}" if steps else ""
            add(data.name, way, *scores, *_times(spent, base[1], counted), f"{same:.2%}")
    for way, spent in totals.items():
        add("all", way, "", "", *_times(spent, totals["batched"], ""), "")
    console.print(table)


def _ways(
    command: Command, examples: Examples
) -> Iterator[tuple[str, Callable[[], tuple[Outcome, int]]]]:
    yield "batched", lambda: (run(examples, PROTOCOLS["senteval-default"], command.seed), 0)
    if command.convex:
        yield "convex", lambda: (run(examples, PROTOCOLS["convex"], command.seed), 0)
    if command.sequential:
        yield "sequential", lambda: sequential(examples, command.seed, command.outer_folds)


def _times(spent: np.ndarray, base: np.ndarray, steps: str) -> list[str]:
    factors = [f"{factor:.1f}" for factor in spent / base]
    return [*(f"{seconds:.1f}" for seconds in spent), steps, *factors]


def _timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """The result, seconds on the clock, seconds of processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - clock, time.process_time() - processor


def _vectors(command: Command, data: TransferData, texts: Sequence[str]) -> np.ndarray:
    folder = model_folder(command.model)
    name = f"{data.name}-{data.fingerprint[:8]}-{model_fingerprint(folder)[:8]}-{command.pooling}"
    path = command.vectors / f"{name}.npy" if command.vectors else None
    if path and path.is_file():
        return np.load(path)
    vectors = SentenceEncoder(folder, command.pooling).encode(texts)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, vectors)
    return vectors


if __name__ == "__main__":
    main(tyro.cli(Command))
