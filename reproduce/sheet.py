"""A table as it is printed: texts, notes and evidence, the same for every format.

Only here are numbers rounded.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from reproduce.compare import Table
from reproduce.published import OTHER, SECTIONS, SOURCES

NO_COMMAND = "no command, as its encoder is not here"
PUBLISHED, MEASURED, VERDICT = "published", "measured", "verdict"


@dataclass(frozen=True)
class Line:
    """One printed line."""

    block: str
    """Lines of a block stand together; what differs is set apart."""
    cells: tuple[str, ...]
    """One a column; an empty text is an empty cell."""
    kind: str = ""
    """What the line holds, where a row has several: published, measured, sd ..."""


@dataclass(frozen=True)
class Sheet:
    """What every format is made from."""

    name: str
    """Stem of its files."""
    title: str
    header: tuple[str, ...]
    """Titles of the columns, each once."""
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    """Sentences under the table."""
    frame: pd.DataFrame
    """The same with all digits."""
    evidence: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What each row rests on, and the commands for what it lacks: row title and texts."""
    texts: frozenset[str] = field(default_factory=frozenset)
    """Columns of running text, which may be folded; the others hold numbers or words."""


def sheet(table: Table) -> Sheet:
    """A table of published and measured rows as it is printed."""
    columns, found = tuple(table.columns), list(rows(table.frame))
    return Sheet(
        name=table.layout.name,
        title=table.layout.title,
        header=("row", "value", *columns, "n"),
        lines=tuple(_lines(found)),
        notes=(*_legend(table), *table.notes),
        frame=table.frame,
        evidence=tuple(_evidence(found)),
        texts=frozenset({"row"}),
    )


def row_name(row: Mapping[str, Any]) -> str:
    """A row's title; with its section where titles come in several."""
    section, title = row["section"], row["title"]
    return title if section in (*SECTIONS, OTHER, title) else f"{section}: {title}"


def number(value: float | None, digits: str = ".2f") -> str:
    """A number to two decimals; empty where there is none."""
    return "" if value is None or math.isnan(value) else format(value, digits)


def rows(frame: pd.DataFrame) -> Iterator[list[dict[str, Any]]]:
    """The lines of each row of a table's frame, as dictionaries by column name."""
    lines = [{str(k): v for k, v in line.items()} for line in frame.to_dict("records")]
    for _, cells in itertools.groupby(lines, key=lambda line: line["row"]):
        yield list(cells)


def _lines(table: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[Line]:
    """Published and measured of each row, then sd, difference and verdict if measured."""
    for cells in table:
        first = cells[0]
        title = f"{first['title']} {first['source']}".strip()
        block = first["section"] + (f" {first['model']}" if first["section"] == OTHER else "")
        kinds = [(PUBLISHED, "published", ".2f"), (MEASURED, "mean", ".2f")]
        if first["n"]:
            kinds += [("sd", "sd", ".2f"), ("difference", "difference", "+.2f")]
        for kind, column, digits in kinds:
            texts = tuple(number(cell[column], digits) for cell in cells)
            if kind == MEASURED or any(texts):
                n = str(first["n"]) if kind == MEASURED else ""
                yield Line(block, (title, kind, *texts, n), kind)
                title = ""
        verdicts = tuple(cell["verdict"] for cell in cells)
        if any(verdicts):
            yield Line(block, ("", VERDICT, *verdicts, ""), VERDICT)


def _evidence(
    table: Sequence[Sequence[Mapping[str, Any]]],
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for cells in table:
        first, texts = cells[0], []
        if first["n"]:
            seeds = f", seeds {first['seeds']}" if first["seeds"] else ""
            texts.append(f"n = {first['n']}{seeds}, runs {', '.join(first['runs'].split())}")
            texts.append(f"made by: {first['made_by'] or 'not recorded'}")
            texts += [
                f"{c['column']} is empty: undefined in {c['undefined']} of {first['n']} runs"
                for c in cells
                if c["undefined"]
            ]
        if first["fill"]:
            texts += [f"to fill: {command}" for command in _short(first["fill"].split(" && "))]
        elif not first["n"]:
            texts.append(f"to fill: {NO_COMMAND}")
        yield row_name(first), tuple(texts)


def _short(commands: list[str]) -> Iterator[str]:
    """Commands that differ in their seed alone as one."""
    seeds: dict[str, list[str]] = {}
    for command in commands:
        found = re.fullmatch(r"(.*) --seed (\d+)", command)
        start, seed = found.groups() if found else (command, "")
        if seed not in seeds.setdefault(start, []):
            seeds[start].append(seed)
    for start, values in seeds.items():
        if values == [""]:
            yield start
        elif len(values) == 1:
            yield f"{start} --seed {values[0]}"
        else:
            yield f"for seed in {' '.join(values)}; do {start} --seed $seed; done"


def _legend(table: Table) -> Iterator[str]:
    marks = {m: text for m, text in SOURCES.items() if m and (table.frame["source"] == m).any()}
    if marks:
        named = "; ".join(f"{mark} {text}" for mark, text in marks.items())
        yield f"Published: {named}; the others were {SOURCES['']}."
    less = "the first row of the block" if table.layout.name == "fidelity" else "published"
    yield (
        "Measured: mean over seeds; sd: sample standard deviation (n - 1); difference: measured - "
        f"{less}; an empty cell was not measured or is undefined."
    )
    if (table.frame["verdict"] != "").any():
        yield table.layout.rule
    if (table.frame["fill"] + table.frame["made_by"] != "").any():
        yield "Commands find the test sets in --data-dir, else in $SCD_DATA_DIR, else on the Hub."
    if table.frame["fill"].str.contains("RUN_ID").any():
        yield "RUN_ID is the id that the training before it prints at its end."
