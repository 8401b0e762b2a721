"""Sentence pairs with a gold score, read from tab-separated text."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from scd_core.data import DataError, read_lines

MIN_PAIRS = 3
"""Fewest scored pairs of an own dev file; with two, a rank correlation is always 1 or -1."""
_SCORE_HEADERS = ("score", "label", "gold", "similarity")
_Row = tuple[str, str, float | None]


@dataclass(frozen=True)
class PairFile:
    """A tab-separated file of sentence pairs; quotes are plain text."""

    path: str
    """Of the sentences, below ``senteval/``."""
    lines: int
    """Lines it has, a header not counted."""
    pairs: int
    """Lines that have a score."""
    columns: tuple[int, int, int] = (0, 1, 2)
    """Of the first sentence, the second sentence and the score, from 0; more may follow."""
    scores: str | None = None
    """File with the scores, line by line, where they are not in the same one."""
    header: bool = False


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sentence pairs with a gold score; pairs without one are left out.

    ``first``, ``second`` and ``gold`` are all (pairs,), in the order of the files; ``gold`` is
    float64 on the data's own scale, as only its order is used.
    """

    name: str
    split: str
    first: list[str]
    second: list[str]
    gold: np.ndarray
    lines: int
    """Lines read, with and without a score."""
    damage: tuple[str, ...] = ()
    """What is not as declared, file by file; scores of such data compare with nothing."""

    @property
    def texts(self) -> list[str]:
        """Every first sentence, then every second one; the same one may come often."""
        return [*self.first, *self.second]

    @property
    def unscored(self) -> int:
        """Lines left out because their score is blank."""
        return self.lines - len(self.gold)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over sentences and scores in order; the same for the same content."""
        content = json.dumps([self.first, self.second, [float(score) for score in self.gold]])
        return hashlib.sha256(content.encode()).hexdigest()


def read_files(
    root: Path, files: Iterable[PairFile], name: str, split: str, allow_damaged: bool = False
) -> Pairs:
    """Declared files below ``root``, pooled in order.

    With ``allow_damaged``, files with other numbers of lines or scores than declared are taken as
    they are, and the pairs say so in ``damage``.

    Raises:
        DataError: a file has another number of lines or scored pairs than declared (all are
            listed); or, whatever is allowed, a line lacks a column, a score is no finite number, or
            sentences and scores differ in length.
    """
    rows: list[_Row] = []
    damage: list[str] = []
    for file in files:
        read = _read_file(root, file)
        rows += read
        damage += _damage(root, file, read)
    if damage and not allow_damaged:
        raise DataError(
            f"{'; '.join(damage)}: the copy is damaged or of another version; get it anew "
            "(scd_core.evaluate --allow-damaged scores it as it is, marked)"
        )
    return _pairs(name, split, rows, tuple(damage))


def read_own_pairs(path: Path, name: str, split: str) -> Pairs:
    """A UTF-8, tab-separated file: two sentences and a score a line, on any scale.

    A header is recognised by its third column (score, label, gold or similarity). Further columns
    and empty lines are ignored; a line with a blank score is left out and counted as unscored.

    Raises:
        DataError: a column or sentence is missing, a score is no finite number, there are fewer
            than ``MIN_PAIRS`` scored pairs, or all scores are equal. The message has file and line.
    """
    rows: list[_Row] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        first, second, score = _fields(line, (0, 1, 2), where)
        if number == 1 and score.strip().lower() in _SCORE_HEADERS:
            continue
        if not (first.strip() and second.strip()):
            raise DataError(f"{where}: a sentence is empty; expected two sentences and a score")
        hint = f", or a header: one of {', '.join(_SCORE_HEADERS)}" if number == 1 else ""
        rows.append((first, second, _score(score, where, hint)))
    pairs = _pairs(name, split, rows)
    if len(pairs.gold) < MIN_PAIRS:
        raise DataError(
            f"{path}: found {len(pairs.gold)} pairs with a score ({pairs.unscored} lines without), "
            f"expected at least {MIN_PAIRS}"
        )
    if np.ptp(pairs.gold) == 0:
        raise DataError(
            f"{path}: all {len(pairs.gold)} scores are {pairs.gold[0]:g}; expected scores that "
            "differ, as equal ones correlate with nothing"
        )
    return pairs


def _pairs(name: str, split: str, rows: Sequence[_Row], damage: tuple[str, ...] = ()) -> Pairs:
    scored = [(first, second, score) for first, second, score in rows if score is not None]
    return Pairs(
        name,
        split,
        [first for first, _, _ in scored],
        [second for _, second, _ in scored],
        np.array([score for _, _, score in scored], dtype=np.float64),
        len(rows),
        damage,
    )


def _read_file(root: Path, file: PairFile) -> list[_Row]:
    path, start = root / file.path, int(file.header)
    scored_path = root / file.scores if file.scores else path
    lines = read_lines(path)[start:]
    scored_lines = read_lines(scored_path) if file.scores else lines
    if len(lines) != len(scored_lines):
        raise DataError(
            f"{path} has {len(lines)} lines and its scores {scored_path} have {len(scored_lines)}; "
            "expected as many, line by line; get both files anew"
        )
    *sentences, score = file.columns
    rows: list[_Row] = []
    for number, (line, scored) in enumerate(zip(lines, scored_lines, strict=True), start + 1):
        first, second = _fields(line, sentences, f"{path}, line {number}")
        where = f"{scored_path}, line {number}"
        rows.append((first, second, _score(_fields(scored, [score], where)[0], where)))
    return rows


def _damage(root: Path, file: PairFile, rows: Sequence[_Row]) -> Iterator[str]:
    if len(rows) != file.lines:
        yield f"{root / file.path} has {len(rows)} lines, expected {file.lines}"
    scores = sum(score is not None for _, _, score in rows)
    if scores != file.pairs:
        yield f"{root / (file.scores or file.path)} has {scores} scores, expected {file.pairs}"


def _fields(line: str, columns: Iterable[int], where: str) -> list[str]:
    cells, wanted = line.split("\t"), list(columns)
    if max(wanted) >= len(cells):
        raise DataError(
            f"{where}: found {len(cells)} tab-separated columns, expected at least "
            f"{max(wanted) + 1}"
        )
    return [cells[column] for column in wanted]


def _score(text: str, where: str, hint: str = "") -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(
            f"{where}: found the score {text.strip()!r}, expected a finite number, or nothing "
            f"where a pair has no score{hint}"
        )
    return value
