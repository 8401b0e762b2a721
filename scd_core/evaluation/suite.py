"""Which tasks an encoder is measured on, and all that is measured of it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scd_core.data import require_files, senteval_dir
from scd_core.evaluation import geometry, sts, transfer
from scd_core.evaluation.labelled import TRANSFER, TransferData, TransferTask, load_transfer
from scd_core.evaluation.pairs import Pairs
from scd_core.evaluation.protocols import DEFAULT, SEED
from scd_core.evaluation.tasks import STS_DEV, STS_TEST, StsTask, load_sample_test, read_task
from scd_core.evaluation.uncertainty import Items, Judged, Ranked
from scd_core.evaluation.vectors import Encode, encode_once

_STS: dict[str, StsTask] = {
    **{task.name: task for task in STS_TEST},
    **{f"{task.name}-dev": task for task in STS_DEV},
}
_TRANSFER: dict[str, TransferTask] = {task.name: task for task in TRANSFER}
_SAMPLE = "sample"
_ALL = (*_STS, _SAMPLE, *_TRANSFER)
GROUPS: dict[str, tuple[str, ...]] = {
    "sts": tuple(task.name for task in STS_TEST),
    "transfer": tuple(_TRANSFER),
    "sts-dev": tuple(f"{task.name}-dev" for task in STS_DEV),
    _SAMPLE: (_SAMPLE,),
}
"""Names that stand for several tasks: Table 1, Table 2, the dev sets, the project's own pairs."""


@dataclass(frozen=True, eq=False)
class Suite:
    """Tasks with their data."""

    names: tuple[str, ...]
    """As on the command line, single tasks only; those of ``pairs``, then those of ``transfer``."""
    pairs: tuple[Pairs, ...]
    transfer: tuple[TransferData, ...]

    @property
    def texts(self) -> list[str]:
        """Every sentence of every task; the same one may come often."""
        of_pairs = [text for pairs in self.pairs for text in pairs.texts]
        return of_pairs + [text for data in self.transfer for text in data.texts]

    @property
    def damage(self) -> list[str]:
        """What is not as declared, file by file."""
        of_pairs = [problem for pairs in self.pairs for problem in pairs.damage]
        return of_pairs + [problem for data in self.transfer for problem in data.damage]

    def protocols(self, protocol: str, seed: int, cut: int | None) -> dict[str, str]:
        """Fingerprints of how "sts" and "transfer" scores are made, of those there are.

        Args:
            protocol: of the transfer tasks.
            seed: of the transfer tasks.
            cut: tokens that sentences are cut to, where that may cut any.
        """
        found = {}
        if self.pairs:
            found["sts"] = sts.protocol_fingerprint(self.pairs)
        if self.transfer:
            found["transfer"] = transfer.protocol_fingerprint(self.transfer, protocol, seed)
        return {name: f"{value}-cut{cut}" if cut else value for name, value in found.items()}


@dataclass(frozen=True, eq=False)
class Result:
    """What one task gave."""

    score: sts.Score | transfer.TransferScore
    items: Items | None
    """What the score is computed from; None where it is undefined."""

    @property
    def metrics(self) -> dict[str, float | None]:
        """All of it that is tracked, by name."""
        if isinstance(self.score, transfer.TransferScore):
            return self.score.metrics
        return {self.score.key: self.score.value}


@dataclass(frozen=True, eq=False)
class Measured:
    """What one encoder gave on a suite."""

    results: tuple[Result, ...]
    geometry: dict[str, geometry.Geometry]
    """Of STS-B or the sample pairs, by split."""
    averages: dict[str, float | None]
    """Plain mean of the unrounded scores of each whole group, by tracked name; None where a score
    is undefined. A part of a group has none."""

    def metrics(self) -> dict[str, float | None]:
        """Everything, by tracked name; None is undefined."""
        found = {name: value for one in self.results for name, value in one.metrics.items()}
        for split, shape in self.geometry.items():
            found |= shape.metrics(split)
        return found | self.averages


def load_suite(names: Sequence[str], data_dir: Path | None, allow_damaged: bool = False) -> Suite:
    """The tasks and groups named, each task once, similarity first.

    With ``allow_damaged``, files with other rows than declared are taken as they are, and the
    scores are marked.

    Raises:
        ValueError: a name is none of a task or group; the message lists them.
        DataError: files are missing (all are listed) or damaged; before anything is encoded.
    """
    unknown = [name for name in names if name not in GROUPS and name not in _ALL]
    if unknown or not names:
        raise ValueError(
            f"--tasks {' '.join(unknown) or 'without a name'}: give one or more of "
            f"{', '.join(GROUPS)}, or of single tasks: {', '.join(_ALL)}"
        )
    asked = {task for name in names for task in GROUPS.get(name, (name,))}
    chosen = tuple(name for name in _ALL if name in asked)
    rated = [task for name, task in _STS.items() if name in chosen]
    labelled = [task for name, task in _TRANSFER.items() if name in chosen]
    pairs: list[Pairs] = []
    if rated or labelled:
        root = senteval_dir(data_dir)
        files = [path for task in rated for path in task.paths]
        require_files(root, files + [file.path for task in labelled for file in task.files])
        pairs = [read_task(root, task, allow_damaged) for task in rated]
    if _SAMPLE in chosen:
        pairs += load_sample_test()
    data = load_transfer(data_dir, labelled, allow_damaged) if labelled else []
    return Suite(chosen, tuple(pairs), tuple(data))


def measure(
    suite: Suite,
    encode: Encode,
    protocol: str = DEFAULT,
    seed: int = SEED,
    starting: Callable[[str], None] = lambda task: None,
) -> Measured:
    """Score every task with one call of ``encode`` over the distinct sentences of all.

    Args:
        suite: the tasks.
        encode: gives the vectors.
        protocol: of the transfer tasks.
        seed: of the transfer tasks; see ``protocols.run``.
        starting: called with the name of each transfer task before its classifiers are trained.
    """
    look_up = encode_once(suite.texts, encode)
    results = [_rank(pairs, look_up) for pairs in suite.pairs]
    shapes: dict[str, geometry.Geometry] = {}
    for name in geometry.SCALE_TO_5:
        for pairs in suite.pairs:
            if pairs.name == name and pairs.split not in shapes:
                shapes[pairs.split] = geometry.measure(pairs, look_up)
    for data in suite.transfer:
        starting(data.name)
        results.append(_classify(data, look_up, protocol, seed))
    return Measured(tuple(results), shapes, _averages(suite, [one.score for one in results]))


def _rank(pairs: Pairs, encode: Encode) -> Result:
    score, cosines = sts.score_and_cosines(pairs, encode)
    return Result(score, None if score.value is None else Ranked(cosines, pairs.gold))


def _classify(data: TransferData, encode: Encode, protocol: str, seed: int) -> Result:
    score = transfer.score_transfer(data, encode, protocol, seed)
    defined = score.value is not None
    return Result(score, Judged(np.equal(score.predicted, score.labels)) if defined else None)


def _averages(
    suite: Suite, scores: Sequence[sts.Score | transfer.TransferScore]
) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    by_name = dict(zip(suite.names, scores, strict=True))
    for members in GROUPS.values():
        group = [by_name[name] for name in members if name in by_name]
        if len(members) < 2 or len(group) < len(members):
            continue
        first = group[0]
        name = f"{first.split}.average"
        if isinstance(first, transfer.TransferScore):
            name += f"_{first.protocol}"
        name += "_damaged" * any(score.damaged for score in group)
        found[name] = sts.average(group)
    return found
