"""Scores of one encoder, or of two side by side, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from rich.table import Table

from scd_core.evaluation.geometry import Geometry
from scd_core.evaluation.suite import Measured, Result
from scd_core.evaluation.transfer import TransferScore
from scd_core.evaluation.uncertainty import LEVEL, Difference, Interval, holm

ALPHA = 0.05


def score_table(
    title: str, caption: str, measured: Measured, intervals: Sequence[Interval | None]
) -> Table:
    """A row a task, then the averages; ``intervals`` are one a task, or none."""
    table = Table(title=title, caption=caption)
    for name in ("task", "split"):
        table.add_column(name)
    for name in ("score", *([f"{LEVEL:.0%} interval"] if intervals else []), "items"):
        table.add_column(name, justify="right")
    table.add_column("")
    for i, one in enumerate(measured.results):
        shown = [_range(intervals[i])] if intervals else []
        table.add_row(one.score.task, one.score.split, one.score.text, *shown, *_items(one))
    table.add_section()
    for name, value in measured.averages.items():
        split, what = name.split(".")
        table.add_row(what.replace("_", ", "), split, _number(value))
    return table


def geometry_table(measured: Measured) -> Table:
    """A row a split."""
    table = Table(title="geometry of the STS-B or sample vectors")
    table.add_column("split")
    for name in (field.name for field in fields(Geometry)):
        table.add_column(name.replace("_", " "), justify="right")
    for split, shape in measured.geometry.items():
        table.add_row(split, *(_number(value) for value in shape.metrics(split).values()))
    return table


def difference_table(
    names: tuple[str, str],
    both: tuple[Measured, Measured],
    differences: Sequence[Difference | None],
) -> Table:
    """The scores of two encoders, their difference, its interval and p-value, a row a task."""
    table = Table(
        title=f"A = {names[0]}\nB = {names[1]}",
        caption=f"p: paired bootstrap over the items, corrected over the tasks (Holm); * where it "
        f"is at most {ALPHA}",
    )
    table.add_column("task")
    for name in ("A", "B", "A - B", f"{LEVEL:.0%} interval", "p"):
        table.add_column(name, justify="right")
    adjusted = iter(holm([d.p for d in differences if d is not None]))
    for a, b, d in zip(both[0].results, both[1].results, differences, strict=True):
        row = [f"{a.score.task} {a.score.split}", a.score.text, b.score.text]
        if d is not None:
            p = next(adjusted)
            row += [f"{d.value:+.2f}", _range(d.interval), f"{p:.4f}{'*' if p <= ALPHA else ' '}"]
        table.add_row(*row)
    return table


def _items(one: Result) -> tuple[str, str]:
    """Number of items, and what else is to be said of the score."""
    score = one.score
    if isinstance(score, TransferScore):
        said = [f"dev {_number(score.dev)}"]
        if score.f1 is not None:
            said.append(f"F1 {score.f1:.2f}")
        return str(score.items), ", ".join(said)
    said = [f"{score.zero_vectors} zero vectors"] * bool(score.zero_vectors)
    return str(score.pairs), ", ".join(said)


def _range(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"
