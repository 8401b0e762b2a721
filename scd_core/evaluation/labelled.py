"""The transfer tasks of the paper's Table 2, declared as data, and the labelled sentences they are.

All seven are read as they lie: lower-cased and tokenised, or not, by whoever prepared them. Words
are put one blank apart, quotes are text, and a blank line (CR and MPQA have some) is an empty
sentence with the label of its file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from scd_core.data import DataError, read_lines, require_files, senteval_dir

FOLDS = 10
"""Parts of every cross-validation, inner and outer (Conneau and Kiela (2018), section 3)."""
SplitKind = Literal["nested", "train-test", "train-dev-test"]
"""What of a task is given: one set, to be split by nested cross-validation; train and test, the
settings being chosen by cross-validation on train; or train, dev and test."""
SPLITS: dict[SplitKind, tuple[str, ...]] = {
    "nested": ("all",),
    "train-test": ("train", "test"),
    "train-dev-test": ("train", "dev", "test"),
}
_Row = tuple[str, str, str]
"""Label, sentence, second sentence (empty where there is none)."""


@dataclass(frozen=True)
class LabelledFile:
    """One file: which rows it has to have, and how a row is written in it."""

    path: str
    """Below ``senteval/``."""
    split: str
    """Of its task: "all", "train", "dev" or "test"."""
    rows: dict[str, int]
    """Rows of each label, a header not counted; a file of one label does not write it."""
    parse: Callable[[str], _Row | None] | None = None
    """Of a line: None where it is not as it should be. Without it, a line is a sentence."""
    header: bool = False
    encoding: str = "utf-8"


@dataclass(frozen=True)
class TransferTask:
    """One column of Table 2: what it is called, which files it is, who made it."""

    name: str
    """As in metric names, e.g. "sst2"."""
    title: str
    """As in the paper's Table 2, e.g. "SST2"."""
    kind: SplitKind
    classes: tuple[str, ...]
    """Labels as in the files; a label's number is its place here."""
    files: tuple[LabelledFile, ...]
    citation: str
    pairs: bool = False
    """Whether an item is two sentences; such a task also has an F1 score, of its class 1."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """One split: n sentences, or n pairs of them, with their labels."""

    sentences: list[str]
    second: list[str]
    """(n,) where an item is a pair, else empty."""
    labels: np.ndarray
    """(n,) int64, numbers of the task's classes."""


@dataclass(frozen=True, eq=False)
class TransferData:
    """A task with its sentences, by split, in the order of the files."""

    task: TransferTask
    splits: dict[str, Labelled]
    damage: tuple[str, ...] = field(default=())
    """What is not as declared, file by file; scores of such data compare with nothing."""

    @property
    def name(self) -> str:
        """As in metric names."""
        return self.task.name

    @property
    def texts(self) -> list[str]:
        """Every sentence of every split; the same one may come often."""
        return [s for part in self.splits.values() for s in [*part.sentences, *part.second]]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over sentences and labels in order; the same for the same content."""
        parts = [
            [name, part.sentences, part.second, part.labels.tolist()]
            for name, part in self.splits.items()
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _sentence_tab_label(line: str) -> _Row | None:
    sentence, tab, label = line.rstrip().rpartition("\t")
    return (label, sentence, "") if tab else None


def _coarse_fine_question(line: str) -> _Row | None:
    label, _, rest = line.partition(":")
    _, blank, question = rest.partition(" ")
    return (label, question, "") if blank else None


def _quality_ids_pair(line: str) -> _Row | None:
    cells = line.split("\t")
    return (cells[0], cells[3], cells[4]) if len(cells) == 5 else None


def _two_files(one: str, one_rows: int, zero: str, zero_rows: int) -> tuple[LabelledFile, ...]:
    # The file of class 1 comes first: items of equal length and label keep this order.
    return (LabelledFile(one, "all", {"1": one_rows}), LabelledFile(zero, "all", {"0": zero_rows}))


def _sst(split: str, zero: int, one: int) -> LabelledFile:
    path = f"SST/binary/sentiment-{split}"
    return LabelledFile(path, split, {"0": zero, "1": one}, _sentence_tab_label)


def _trec(file: str, split: str, encoding: str, *rows: int) -> LabelledFile:
    counts = dict(zip(_QUESTIONS, rows, strict=True))
    return LabelledFile(f"TREC/{file}", split, counts, _coarse_fine_question, encoding=encoding)


def _mrpc(split: str, zero: int, one: int) -> LabelledFile:
    path = f"MRPC/msr_paraphrase_{split}.txt"
    return LabelledFile(path, split, {"0": zero, "1": one}, _quality_ids_pair, header=True)


_BINARY = ("0", "1")
_QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

TRANSFER: tuple[TransferTask, ...] = (
    TransferTask(
        "mr",
        "MR",
        "nested",
        _BINARY,
        _two_files("MR/rt-polarity.pos", 5331, "MR/rt-polarity.neg", 5331),
        "Pang and Lee (2005), Seeing stars: Exploiting class relationships for sentiment "
        "categorization with respect to rating scales",
    ),
    TransferTask(
        "cr",
        "CR",
        "nested",
        _BINARY,
        _two_files("CR/custrev.pos", 2407, "CR/custrev.neg", 1368),
        "Hu and Liu (2004), Mining and summarizing customer reviews",
    ),
    TransferTask(
        "subj",
        "SUBJ",
        "nested",
        _BINARY,
        _two_files("SUBJ/subj.objective", 5000, "SUBJ/subj.subjective", 5000),
        "Pang and Lee (2004), A sentimental education: Sentiment analysis using subjectivity "
        "summarization based on minimum cuts",
    ),
    TransferTask(
        "mpqa",
        "MPQA",
        "nested",
        _BINARY,
        _two_files("MPQA/mpqa.pos", 3312, "MPQA/mpqa.neg", 7294),
        "Wiebe et al. (2005), Annotating expressions of opinions and emotions in language",
    ),
    TransferTask(
        "sst2",
        "SST2",
        "train-dev-test",
        _BINARY,
        (_sst("train", 29780, 37569), _sst("dev", 428, 444), _sst("test", 912, 909)),
        "Socher et al. (2013), Recursive deep models for semantic compositionality over a "
        "sentiment treebank",
    ),
    TransferTask(
        "trec",
        "TREC",
        "train-test",
        _QUESTIONS,
        (
            _trec("train_5500.label", "train", "latin-1", 86, 1162, 1250, 1223, 835, 896),
            _trec("TREC_10.label", "test", "latin-1", 9, 138, 94, 65, 81, 113),
        ),
        "Li and Roth (2002), Learning question classifiers",
    ),
    TransferTask(
        "mrpc",
        "MRPC",
        "train-test",
        _BINARY,
        (_mrpc("train", 1323, 2753), _mrpc("test", 578, 1147)),
        "Dolan et al. (2004), Unsupervised construction of large paraphrase corpora: Exploiting "
        "massively parallel news sources",
        pairs=True,
    ),
)
"""The seven columns of Table 2, in its order."""


def load_transfer(
    data_dir: Path | None,
    tasks: Sequence[TransferTask] = TRANSFER,
    allow_damaged: bool = False,
) -> list[TransferData]:
    """The tasks, in the order given, once every file of all of them has been checked.

    ``data_dir`` is as for ``scd_core.data.senteval_dir``. With ``allow_damaged``, files with other
    rows than declared are taken as they are, lines that cannot be read are left out, and the data
    says so in ``damage``.

    Raises:
        DataError: files are missing (all are listed); or have other rows or labels than declared
            (all are listed, with what was found and expected); or, whatever is allowed, so few
            rows are left that there is no cross-validation.
    """
    root = senteval_dir(data_dir)
    require_files(root, (file.path for task in tasks for file in task.files))
    loaded = [_read_task(root, task) for task in tasks]
    damage = [problem for data in loaded for problem in data.damage]
    if damage and not allow_damaged:
        listed = "".join(f"\n  {problem}" for problem in damage)
        raise DataError(
            f"evaluation files in {root} are damaged or of another version:{listed}\n"
            "Get them anew, or evaluate them as they are with --allow-damaged: the scores are "
            "marked then, and compare with nothing."
        )
    return loaded


def _read_task(root: Path, task: TransferTask) -> TransferData:
    rows: dict[str, list[_Row]] = {split: [] for split in SPLITS[task.kind]}
    damage: list[str] = []
    for file in task.files:
        read, unread = _read_file(root / file.path, file)
        rows[file.split] += read
        damage += _damage(file, read, unread)
    for split, found in rows.items():
        if len(found) < FOLDS:
            files = ", ".join(file.path for file in task.files if file.split == split)
            raise DataError(
                f"{root}: {files} hold {len(found)} rows, too few to evaluate {task.title} with "
                f"{FOLDS} folds; get the data anew"
            )
    return TransferData(
        task, {split: _labelled(task, found) for split, found in rows.items()}, tuple(damage)
    )


def _read_file(path: Path, file: LabelledFile) -> tuple[list[_Row], list[int]]:
    """The rows that can be read, and the numbers of the lines that cannot."""
    rows, unread = [], []
    only = next(iter(file.rows))
    for number, line in enumerate(read_lines(path, file.encoding), start=1):
        if number == 1 and file.header:
            continue
        row = file.parse(line) if file.parse else (only, line, "")
        if row is None or row[0] not in file.rows:
            unread.append(number)
        else:
            rows.append(row)
    return rows, unread


def _damage(file: LabelledFile, rows: Sequence[_Row], unread: Sequence[int]) -> Iterator[str]:
    expected = sum(file.rows.values())
    if len(rows) != expected:
        yield f"{file.path}: found {len(rows)} rows, expected {expected}"
    if unread:
        yield (
            f"{file.path}: found {len(unread)} lines without a sentence and one of the labels "
            f"{', '.join(file.rows)}, expected none; the first is line {unread[0]}"
        )
    found = Counter(label for label, _, _ in rows)
    if len(file.rows) > 1:
        for label, count in file.rows.items():
            if found[label] != count:
                yield f"{file.path}: found {found[label]} rows of label {label}, expected {count}"


def _labelled(task: TransferTask, rows: Sequence[_Row]) -> Labelled:
    return Labelled(
        [_spaced(sentence) for _, sentence, _ in rows],
        [_spaced(second) for _, _, second in rows] if task.pairs else [],
        np.array([task.classes.index(label) for label, _, _ in rows], dtype=np.int64),
    )


def _spaced(text: str) -> str:
    return " ".join(text.split())
