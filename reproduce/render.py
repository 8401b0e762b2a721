"""Terminal, Markdown and CSV from one frame. Only here are numbers rounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from reproduce.published import OTHER, SOURCES

if TYPE_CHECKING:
    from reproduce.compare import Table

_SHORT = 8  # characters of a run id: enough to find it, and it fits a line
_TITLE_WIDTH = 36  # characters after which a row's title is folded


@dataclass(frozen=True)
class Line:
    """One printed line of a table."""

    section: str
    title: str
    """Empty for the lines that follow the first of their row."""
    what: str
    """published, measured, sd or difference."""
    cells: tuple[str, ...]
    """One a column, rounded to two decimals; an empty string is an empty cell."""
    n: str


def lines(frame: pd.DataFrame) -> Iterator[Line]:
    """The printed lines of a frame: published and measured, then sd and difference if measured."""
    for _, cells in frame.groupby("row", sort=False):
        first = cells.iloc[0]
        title = f"{first['title']} {first['source']}".strip()
        kinds = [("published", "published", ".2f"), ("measured", "mean", ".2f")]
        if first["section"] == OTHER:
            kinds = kinds[1:]
        if first["n"]:
            kinds += [("sd", "sd", ".2f"), ("difference", "difference", "+.2f")]
        for what, column, digits in kinds:
            texts = tuple("" if pd.isna(v) else format(v, digits) for v in cells[column])
            if what in ("published", "measured") or any(texts):
                n = str(first["n"]) if what == "measured" else ""
                yield Line(first["section"], title, what, texts, n)
                title = ""


def evidence(frame: pd.DataFrame, run_length: int | None = None) -> Iterator[tuple[str, str]]:
    """What each row rests on, and the commands for what it lacks: (title, text).

    Args:
        run_length: characters of a run id to show; None shows them whole.
    """
    for _, cells in frame.groupby("row", sort=False):
        first = cells.iloc[0]
        title = str(first["title"])
        if first["n"]:
            runs = ", ".join(run[:run_length] for run in first["runs"].split())
            seeds = f", seeds {first['seeds']}" if first["seeds"] else ""
            yield title, f"n = {first['n']}{seeds}, runs {runs}"
            unknown = cells[cells["undefined"] > 0]
            for column, count in zip(unknown["column"], unknown["undefined"], strict=True):
                yield title, f"{column} is empty: undefined in {count} of {first['n']} runs"
        if first["fill"]:
            for command in first["fill"].split(" && "):
                yield title, f"to fill: {command}"
        elif not first["n"]:
            yield title, "to fill: no command yet"
        if first["section"] == OTHER and first["made_by"]:
            yield title, f"made by: {first['made_by']}"


def print_terminal(table: Table, console: Console | None = None) -> None:
    """Print a table and its evidence; lines are as long as its digits need."""
    console = console or Console()
    columns = list(dict.fromkeys(table.frame["column"]))
    grid = Grid(box=box.SIMPLE_HEAD, title=table.title, title_justify="left", padding=(0, 1, 0, 0))
    grid.add_column("", max_width=_TITLE_WIDTH, overflow="fold")
    grid.add_column("", no_wrap=True)
    for column in (*columns, "n"):
        grid.add_column(column, justify="right", no_wrap=True)
    section = None
    for line in lines(table.frame):
        if section not in (None, line.section):
            grid.add_section()
        section = line.section
        style = "dim" if line.what == "published" else ""
        # plain text: "[CLS]" is no markup
        grid.add_row(*(Text(t, style=style) for t in (line.title, line.what, *line.cells, line.n)))
    needed = Measurement.get(console, console.options.update(max_width=1000), grid).maximum
    console.width = max(console.width, needed)  # a digit is never cut off to save space
    console.print(grid)
    for sentence in (*_legend(), *table.notes):
        console.print(Text(sentence), soft_wrap=True)
    console.print()
    title = None
    for row, text in evidence(table.frame, _SHORT):
        if row != title:
            console.print(Text(row), style="bold", soft_wrap=True)
        title = row
        console.print(Text(f"  {text}"), soft_wrap=True)


def markdown(table: Table) -> str:
    """A table and its evidence in Markdown, with whole run ids."""
    columns = list(dict.fromkeys(table.frame["column"]))
    header = ["", "", *columns, "n"]
    text = [
        f"## {table.title}",
        "",
        _row(header),
        _row(["---", "---"] + ["---:"] * (len(header) - 2)),
    ]
    text += [_row([li.title, li.what, *li.cells, li.n]) for li in lines(table.frame)]
    text += ["", *(f"{sentence}  " for sentence in (*_legend(), *table.notes)), ""]
    title = None
    for row, what in evidence(table.frame):
        if row != title:
            text.append(f"- {_escape(row)}")
        title = row
        text.append(f"  - {_escape(what)}")
    return "\n".join(text) + "\n"


def csv(table: Table) -> str:
    """The whole frame with all digits."""
    return str(table.frame.to_csv(index=False, lineterminator="\n"))


def _legend() -> list[str]:
    named = "; ".join(f"{mark} {text}" for mark, text in SOURCES.items() if mark)
    return [
        f"Published: {named}; the others were {SOURCES['']}.",
        "Measured: mean over seeds; sd: sample standard deviation (n - 1); difference: measured - "
        "published; an empty cell was not measured or is undefined.",
    ]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
