"""Accuracy of a linear classifier on frozen sentence vectors: the transfer tasks of Table 2.

The protocol, how the classifier is made and its strength chosen (see ``protocols``), is part of
every score's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from sklearn.metrics import f1_score  # type: ignore[import-untyped]

from scd_core.evaluation.labelled import Labelled, TransferData
from scd_core.evaluation.protocols import DEFAULT, PROTOCOLS, SEED, Examples, run
from scd_core.evaluation.vectors import Encode, encode_once

METRIC = "accuracy"


def _none() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class TransferScore:
    """What one encoder scores on one transfer task. Greater is better."""

    task: str
    protocol: str
    value: float | None
    """Test accuracy x 100, to two decimals as the toolkit rounds it; None, undefined, where a
    vector is not finite."""
    dev: float | None
    """Accuracy x 100 of the chosen strength, on inner folds or the dev split."""
    f1: float | None
    """F1 x 100 of class 1 on the test part, for tasks of pairs; else None."""
    strengths: tuple[float, ...]
    """L2 strength chosen; one for each outer fold where the test part is folds."""
    items: int
    """Test items; where the test part is folds, all items, each once."""
    seed: int
    damaged: bool = False
    """The data is not what the task is declared to be: the score compares with nothing."""
    labels: np.ndarray = field(default_factory=_none, compare=False, repr=False)
    """(items,) right classes."""
    predicted: np.ndarray = field(default_factory=_none, compare=False, repr=False)
    """(items,) predicted classes, in the order of ``labels``. That order is the same for every
    encoder, so two encoders compare item by item. Where the test part is folds, ``value`` is the
    mean of their accuracies, which differs a little from the share over all items."""
    split: str = "test"
    metric: str = METRIC

    @property
    def key(self) -> str:
        """Name of the tracked metric, e.g. ``test.cr.accuracy_senteval-default``."""
        return f"{self.split}.{self._name(self.metric)}"

    @property
    def metrics(self) -> dict[str, float | None]:
        """All that is to be tracked: the score under its key, its dev value, and F1 if it has one.

        Names end in ``_damaged`` where the data is, so that no table finds them.
        """
        values = {self.key: self.value, f"dev.{self._name(self.metric)}": self.dev}
        return values if self.f1 is None else values | {f"{self.split}.{self._name('f1')}": self.f1}

    @property
    def text(self) -> str:
        """The value as printed: two decimals, or "undefined"; marked where the data is damaged."""
        value = "undefined" if self.value is None else f"{self.value:.2f}"
        return f"{value} (damaged data)" if self.damaged else value

    def record(self) -> dict[str, object]:
        """Every field but labels and predictions, for JSON."""
        kept = [f.name for f in fields(self) if f.name not in ("labels", "predicted")]
        return {name: getattr(self, name) for name in kept}

    def _name(self, metric: str) -> str:
        return f"{self.task}.{metric}_{self.protocol}" + "_damaged" * self.damaged


def score_transfer(
    data: TransferData, encode: Encode, protocol: str = DEFAULT, seed: int = SEED
) -> TransferScore:
    """Score one task. ``encode`` is called once, with the task's distinct sentences.

    For what the seed decides, see ``protocols.run``. Runs on the CPU.

    Raises:
        ValueError: no such protocol, or ``encode`` returned something else than a row a sentence.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol {protocol!r} is none of {', '.join(PROTOCOLS)}")
    examples = prepare(data, encode)
    labels, damaged = examples.labels[examples.test], bool(data.damage)
    if not np.isfinite(examples.features).all():
        return TransferScore(data.name, protocol, None, None, None, (), len(labels), seed, damaged)
    outcome = run(examples, PROTOCOLS[protocol], seed)
    f1 = None
    if data.task.pairs:
        f1 = round(100 * float(f1_score(labels, outcome.predicted, zero_division=0.0)), 2)
    return TransferScore(
        data.name,
        protocol,
        outcome.test,
        outcome.dev,
        f1,
        outcome.strengths,
        len(labels),
        seed,
        damaged,
        labels,
        outcome.predicted,
    )


def protocol_fingerprint(
    data: Sequence[TransferData], protocol: str = DEFAULT, seed: int = SEED
) -> str:
    """Twelve hex digits over the protocol's settings and the tasks with their data, in any order.

    Scores with the same fingerprint may share a table.
    """
    tasks = sorted([one.name, one.fingerprint] for one in data)
    content = json.dumps([PROTOCOLS[protocol].settings(seed), tasks], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def prepare(data: TransferData, encode: Encode) -> Examples:
    """The task as numbers: the vector of a sentence, (hidden,), or |u - v| and u * v of a pair.

    Raises:
        ValueError: ``encode`` returned something else than a row a sentence.
    """
    splits = {name: in_toolkit_order(part) for name, part in data.splits.items()}
    look_up = encode_once(data.texts, encode)

    def vectors(texts: list[str]) -> np.ndarray:
        return np.asarray(look_up(texts), dtype=np.float32)

    features = vectors([text for part in splits.values() for text in part.sentences])
    if data.task.pairs:
        second = vectors([text for part in splits.values() for text in part.second])
        features = np.concatenate([np.abs(features - second), features * second], axis=1)
    rows, end = {}, 0
    for name, part in splits.items():
        rows[name] = np.arange(end, end + len(part.labels))
        end += len(part.labels)
    labels = np.concatenate([part.labels for part in splits.values()])
    return Examples(features, labels, rows, len(data.task.classes))


def in_toolkit_order(part: Labelled) -> Labelled:
    """By number of words (of the first sentence, then of the second), then by label.

    The toolkit sorts so to save padding; as folds and batches are drawn by place, the order is part
    of its protocol.
    """
    seconds = part.second or [""] * len(part.sentences)
    lengths = [
        (len(a.split()), len(b.split()), int(label))
        for a, b, label in zip(part.sentences, seconds, part.labels, strict=True)
    ]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return Labelled(
        [part.sentences[i] for i in order],
        [part.second[i] for i in order] if part.second else [],
        part.labels[order],
    )
