"""The numbers the SCD paper prints, read from ``published/*.csv`` and checked.

One file a table, one line a row of the paper in the paper's order. The scores are points as printed
(Spearman x 100 in Tables 1 and 3, accuracy in % in Table 2); nothing is corrected in the files.
``figure2.csv`` has the two figures that section 3.4.2 gives for SCD; the paper prints none of the
figure's other points. ``table2-later.csv`` has what the authors published later for SCD-BERT
(released-code row 21).
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scd_core.recipe import preset_names

FOLDER = Path(__file__).parent / "published"
AVERAGE = "Avg."
"""The column that holds the printed mean of the others."""
SOURCES = {
    "♣": "Reimers and Gurevych (2019)",
    "♡": "Zhang et al. (2020)",
    "◊": "Gao et al. (2021)",
    "†": "later figures of the authors of SCD, not in the paper",
    "": "measured by the authors of SCD",
}
"""What the marker beside a row's title says, as in the captions of Tables 1 and 2; † is ours."""
SECTIONS = ("bert", "roberta", "later")
OTHER = "other"
"""Section of the measured rows that the paper does not have."""
MISPRINTED_AVERAGES = {("table2", "bert-avg")}
"""Rows whose cells do not give the printed average: Table 2, Avg. BERT embeddings, has cells that
average 84.95 and prints 84.94 (released-code row 23)."""
GLOVE_VECTORS = "glove.840B.300d.txt"
"""File of the word vectors behind the published GloVe rows."""
OVER_ENCODER = ("whitening", "flow")
"""Methods that are fitted to the vectors of an encoder."""
FITTED_ON = "nli"
FITTED_POOLING: Literal["first_last"] = "first_last"
"""Corpus and base vectors of their published rows (SimCSE, Appendix C)."""
PUBLISHED_MODELS = ("bert-base-uncased", "roberta-base")
"""Encoders of the tables."""
_HALF_DIGIT = 0.005 + 1e-9  # a printed average is the mean of its printed cells within this
RANGES = {"alignment": (0.0, 4.0), "uniformity": (-8.0, 0.0)}
"""Lowest and highest possible values of columns that are no points."""
_POINTS = (0.0, 100.0)
_FIELDS = ("id", "title", "section", "source", "method", "model", "pooling", "preset")


@dataclass(frozen=True)
class PublishedRow:
    """One row of a published table."""

    id: str
    """Unique in its table; the same method on the same model has the same id in every table."""
    title: str
    """As printed, a subscript written with an underscore and without the source marker."""
    section: str
    """Part of the table: "bert" (upper), "roberta" (lower) or "later" (not in the paper)."""
    source: str
    """Marker of the caption, a key of ``SOURCES``."""
    method: str
    """What makes the vectors: "scd", "simcse", "embedding" (of an untrained encoder), "flow" ..."""
    model: str
    """Hub name of the backbone; empty where there is none."""
    pooling: str
    """cls, mean or first_last; empty where the method's own paper decides."""
    preset: str
    """This project's preset that makes the row; empty where there is none."""
    scores: dict[str, float]
    """Points by column title, as printed, the average included."""


@dataclass(frozen=True)
class PublishedTable:
    """A published table: its columns from left to right and its rows from top to bottom."""

    name: str
    """Stem of the file, e.g. "table1"."""
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]


def read_table(path: Path) -> PublishedTable:
    """Read and check one file of published numbers.

    Raises:
        ValueError: an unknown or missing column, a repeated id, an unknown section, source or
            preset, a score that is no number from 0 to 100, or an average that its cells do not
            give; with file, row and value.
    """
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    columns = tuple(header[len(_FIELDS) :])
    if tuple(header[: len(_FIELDS)]) != _FIELDS or not columns or len(set(columns)) < len(columns):
        raise ValueError(
            f"{path}: the header is {header}; it must be {list(_FIELDS)} and then the titles of "
            "the table's columns, each once"
        )
    rows: dict[str, PublishedRow] = {}
    for line in lines:
        where = f"{path}, row {line[0] if line else ''!r}"
        if len(line) != len(header):
            raise ValueError(f"{where}: {len(line)} values found; the header has {len(header)}")
        scores = {
            c: _points(text, where, c)
            for c, text in zip(columns, line[len(_FIELDS) :], strict=True)
        }
        row_id, title, section, source, method, model, pooling, row_preset = line[: len(_FIELDS)]
        row = PublishedRow(
            row_id, title, section, source, method, model, pooling, row_preset, scores
        )
        _check(row, where, printed_average_is_off=(path.stem, row.id) in MISPRINTED_AVERAGES)
        if row.id in rows:
            raise ValueError(f"{where}: the id is there twice; give each row its own")
        rows[row.id] = row
    return PublishedTable(path.stem, columns, tuple(rows.values()))


def published_table(name: str) -> PublishedTable:
    """A table by the name of its file: table1, table2, table3, table2-later or figure2.

    Raises:
        ValueError: there is no file of that name; the message lists those there are.
    """
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        known = sorted(p.stem for p in FOLDER.glob("*.csv"))
        raise ValueError(f"{name!r} has no published numbers; choose one of {known}")
    return read_table(path)


def mean_of_cells(row: PublishedRow) -> float:
    """Plain mean of a row's printed cells, unrounded, without its printed average."""
    cells = [score for column, score in row.scores.items() if column != AVERAGE]
    return math.fsum(cells) / len(cells)


def _points(text: str, where: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    low, high = RANGES.get(column, _POINTS)
    if not low <= value <= high:
        raise ValueError(
            f"{where}, {column} = {text!r}: a score is a number from {low:g} to {high:g}"
        )
    return value


def _check(row: PublishedRow, where: str, printed_average_is_off: bool) -> None:
    presets = ["", *preset_names()]
    for name, value, allowed in (
        ("section", row.section, list(SECTIONS)),
        ("source", row.source, list(SOURCES)),
        ("preset", row.preset, presets),
    ):
        if value not in allowed:
            raise ValueError(f"{where}: {name} = {value!r}; it must be one of {allowed}")
    if AVERAGE in row.scores and not printed_average_is_off:
        printed, mean = row.scores[AVERAGE], mean_of_cells(row)
        if abs(mean - printed) > _HALF_DIGIT:
            raise ValueError(
                f"{where}: {AVERAGE} = {printed}, but its cells average {mean:.4f}; correct the "
                "mistyped cell, or list the row in MISPRINTED_AVERAGES if the paper prints it so"
            )
