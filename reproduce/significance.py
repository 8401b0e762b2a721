"""Whether SCD's row differs from the others: paired bootstrap over test items, corrected by Holm.

Two runs of one protocol are scored on the same items, so the items are drawn for both together
(``scd_core.evaluation.uncertainty``). Over the seeds of a row the scores of a resample are
averaged, and over the tasks of an average too, where every task is drawn for itself. So the test
speaks of other items of the same kind, with the seeds as they are; how far seeds move a row is its
sd. The p-value is that of a normal distribution with the bootstrap's standard error: a share of
resamples cannot be as small as the correction over a whole table asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from reproduce.compare import Table
from reproduce.fidelity import base_recipes
from reproduce.sheet import Line, Sheet, number
from scd_core.evaluation.uncertainty import Items, holm, judged_difference, resampled

ALPHA = 0.05
RESAMPLES = 1000
_NOTHING = 1e-9  # points: rounding of sums makes less
LoadItems = Callable[[str], dict[str, Items] | None]
"""From a run id to its items by tracked name; None where it kept none."""
_FIELDS = (
    "table",
    "model",
    "row",
    "title",
    "against",
    "against_title",
    "column",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "next_best",
    "runs",
    "against_runs",
)


@dataclass(frozen=True)
class _Row:
    id: str
    title: str
    model: str
    runs: tuple[str, ...]
    means: dict[str, float]


def significance(tables: Sequence[Table], load: LoadItems) -> pd.DataFrame:
    """Differences of SCD's row of each encoder to its other rows, a line for each column.

    ``p_holm`` is corrected over all lines of a table; ``next_best`` marks, in each column, the best
    of the other rows. Rows whose runs kept no items are left out, and are the best all the same.
    """
    draws = _Draws(load)
    found = [pd.DataFrame(_differences(table, draws), columns=list(_FIELDS)) for table in tables]
    for one in found:
        one["p_holm"] = holm(one["p"].tolist())
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(_FIELDS))


def significance_sheet(frame: pd.DataFrame, name: str, title: str, columns: Sequence[str]) -> Sheet:
    """The differences of one table as they are printed."""
    shown = frame[frame["table"] == name]
    pairs = [pair for _, pair in shown.groupby(["row", "against"], sort=False)]
    notes = [
        f"Difference and its 95% interval, by {RESAMPLES} resamples of the test items drawn for "
        "both rows together; seeds and tasks are averaged within a resample; p by the bootstrap's "
        f"standard error. * p is at most {ALPHA} after Holm's correction "
        f"over the table's {len(shown)} differences; ‡ the best of the other rows in that column "
        "(none has the mark where the best one's items are not here). Other seeds may move a row "
        "further: that is its sd."
    ]
    if shown.empty:
        notes = ["Nothing to compare: no two rows of one encoder have items of their runs here."]
    return Sheet(
        name=f"significance-{name}",
        title=f"{title}: SCD less the other rows of its encoder",
        header=("row", "less", "value", *columns),
        lines=tuple(line for pair in pairs for line in _pair(pair, columns)),
        notes=tuple(notes),
        frame=shown,
        texts=frozenset({"row", "less"}),
    )


def _pair(pair: pd.DataFrame, columns: Sequence[str]) -> Iterator[Line]:
    by_column = {line["column"]: line for line in pair.to_dict("records")}
    first = pair.iloc[0]

    def cells(make: Callable[[dict[Hashable, Any]], str]) -> list[str]:
        return [make(by_column[c]) if c in by_column else "" for c in columns]

    def difference(cell: dict[Hashable, Any]) -> str:
        mark = "*" * bool(cell["p_holm"] <= ALPHA) + "‡" * bool(cell["next_best"])
        return number(cell["difference"], "+.2f") + mark

    block = f"{first['model']} {first['row']}"
    titles = first["title"], first["against_title"]
    yield Line(block, (*titles, "difference", *cells(difference)))
    yield Line(block, ("", "", "from", *cells(lambda c: number(c["low"], "+.2f"))), "interval")
    yield Line(block, ("", "", "to", *cells(lambda c: number(c["high"], "+.2f"))), "interval")
    yield Line(block, ("", "", "p (Holm)", *cells(lambda c: _small(c["p_holm"]))), "p")


def _small(p: float) -> str:
    return "<0.0001" if p < 0.0001 else number(p, ".4f")


def _differences(table: Table, draws: _Draws) -> Iterator[dict[str, object]]:
    found = [row for row in _rows(table.frame) if row.runs]
    measured = [row for row in found if draws.kept(row.runs)]
    references = _references(table.frame)
    # one measured row may stand beside two published ones
    for scd in {row.runs: row for row in reversed(measured) if row.id in references}.values():
        rivals = [r for r in found if r.model in ("", scd.model) and r.runs != scd.runs]
        others = {row.runs: row for row in reversed(rivals) if draws.kept(row.runs)}.values()
        for other in others:
            for column in table.layout.columns:
                if not (column.title in scd.means and column.title in other.means):
                    continue
                value = scd.means[column.title] - other.means[column.title]
                apart = draws.mean(scd.runs, column.keys) - draws.mean(other.runs, column.keys)
                judged = judged_difference(value, apart)
                if judged is None:
                    continue
                best = max(o.means.get(column.title, -np.inf) for o in rivals)
                yield {
                    "table": table.layout.name,
                    "model": scd.model,
                    "row": scd.id,
                    "title": scd.title,
                    "against": other.id,
                    "against_title": other.title,
                    "column": column.title,
                    "difference": value,
                    "low": judged.interval.low,
                    "high": judged.interval.high,
                    "p": _p(value, float(apart.std(ddof=1))),
                    "next_best": other.means[column.title] == best,
                    "runs": " ".join(scd.runs),
                    "against_runs": " ".join(other.runs),
                }


def _p(value: float, error: float) -> float:
    """Two-sided, of a normal distribution; two rows of the same vectors differ by nothing."""
    if error < _NOTHING:
        return float(abs(value) < _NOTHING)
    return float(2 * ndtr(-abs(value) / error))


class _Draws:
    """Resampled scores of runs, each made once."""

    def __init__(self, load: LoadItems) -> None:
        self._load = load
        self._items: dict[str, dict[str, Items] | None] = {}
        self._counts: dict[str, int] = {}
        self._scores: dict[tuple[str, str], np.ndarray] = {}

    def kept(self, runs: Sequence[str]) -> bool:
        """Whether all of them kept their items."""
        for run in runs:
            if run not in self._items:
                self._items[run] = self._load(run)
        return all(self._items[run] for run in runs)

    def mean(self, runs: Sequence[str], keys: Sequence[str]) -> np.ndarray:
        """(resamples,) mean over runs and keys, drawn together for all runs of a key."""
        return np.mean([self._one(run, key) for run in runs for key in keys], axis=0)

    def _one(self, run: str, key: str) -> np.ndarray:
        if (run, key) not in self._scores:
            items = (self._items[run] or {})[key]
            if self._counts.setdefault(key, items.count) != items.count:
                raise ValueError(
                    f"run {run} has {items.count} items of {key}, others {self._counts[key]}: they "
                    "cannot be compared; delete the run and evaluate again"
                )
            self._scores[run, key] = resampled(items, key, RESAMPLES)
        return self._scores[run, key]


def _references(frame: pd.DataFrame) -> set[str]:
    """Ids of the rows that are SCD with an encoder's base recipe."""
    base = frame["recipe_hash"].isin(base_recipes())
    return set(frame.loc[(frame["role"] == "scd") & base, "row"])


def _rows(frame: pd.DataFrame) -> Iterator[_Row]:
    for row, cells in frame.groupby("row", sort=False):
        first = cells.iloc[0]
        known = cells[cells["mean"].notna()]
        means = dict(zip(known["column"], known["mean"], strict=True))
        yield _Row(str(row), first["title"], first["model"], tuple(first["runs"].split()), means)
