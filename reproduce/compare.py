"""Published rows beside measured ones, in one frame.

A table is a ``Layout`` (its columns) and a file of published rows; the measured side comes from
``reproduce.aggregate``. Every format is rendered from ``Table.frame``, which keeps all digits.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from reproduce.aggregate import Column, Group, Selection, Setting, select, summarise
from reproduce.published import AVERAGE, OTHER, PublishedRow, PublishedTable, published_table
from scd_core.evaluation.tasks import STS_TEST
from scd_core.recipe import Recipe, preset, preset_names

if TYPE_CHECKING:
    from scd_core.tracking import RunInfo

SEEDS = (0, 1, 2)
"""Seeds that a trained row is measured with."""
_STS_KEYS = {task.title: f"test.{task.name}.spearman_all" for task in STS_TEST}


@dataclass(frozen=True)
class Layout:
    """What a table is called and which metrics its columns hold."""

    title: str
    columns: tuple[Column, ...]


LAYOUTS = {
    1: Layout(
        "Table 1: STS test sets, Spearman x 100, all pairs of a task pooled",
        (
            *(Column(title, (key,)) for title, key in _STS_KEYS.items()),
            Column(AVERAGE, tuple(_STS_KEYS.values())),
        ),
    )
}


@dataclass(frozen=True)
class Table:
    """A table of published and measured rows."""

    title: str
    protocol: str | None
    """Fingerprint of the evaluation protocol of everything measured in it."""
    frame: pd.DataFrame
    """One line for each row and column of the table (``row, column`` is the key), in the table's
    order: row, title, section ("other": not in the paper), source, column, published, mean, sd,
    difference (mean - published), undefined (runs), n (runs), seeds, runs (ids), fill (command for
    what is not measured), made_by (command of the latest run), protocol. Points, unrounded; NaN is
    an empty cell."""
    notes: tuple[str, ...]
    """What was chosen and left out, a sentence each."""


def build(number: int, runs: Iterable[RunInfo], protocol: str | None = None) -> Table:
    """Put the measured runs beside the published rows of a table.

    Args:
        number: of the table in the paper; a key of ``LAYOUTS``.
        runs: any runs; ``reproduce.aggregate`` says which of them enter.
        protocol: a protocol's fingerprint or its beginning; None takes the one with most runs.

    Raises:
        ValueError: no run that could enter has that protocol.
    """
    layout, published = LAYOUTS[number], published_table(number)
    selection = select(runs, layout.columns, protocol)
    matched = _match(published, selection.groups)
    rows: list[dict[str, object]] = []
    for row in published.rows:
        rows += _lines(layout, row, matched.get(row.id), selection.protocol)
    known = {group.setting for group in matched.values()}
    others = [group for group in selection.groups if group.setting not in known]
    for row, group in _unpublished(others):
        rows += _lines(layout, row, group, selection.protocol)
    return Table(
        title=layout.title,
        protocol=selection.protocol,
        frame=pd.DataFrame(rows),
        notes=tuple(_notes(selection)),
    )


_preset = functools.cache(preset)  # read once, not once for every group


def _match(published: PublishedTable, groups: Sequence[Group]) -> dict[str, Group]:
    """The group behind each published row that has one.

    Where several fit (the same recipe on other data, the same model name with other weights), the
    one with most seeds is taken, of those the one that cut sentences least, then the one with the
    latest run; the others stay rows of their own.
    """
    found: dict[str, Group] = {}
    for row in published.rows:
        fitting = [group for group in groups if _fits(row, group)]
        if fitting:
            found[row.id] = max(
                fitting,
                key=lambda g: (
                    len(g.runs),
                    g.setting.max_length,
                    g.latest.start_time,
                    g.latest.run_id,
                ),
            )
    return found


def _fits(row: PublishedRow, group: Group) -> bool:
    setting = group.setting
    if (setting.method, setting.model) != (row.method, row.model):
        return False
    if row.preset:
        recipe = _preset(row.preset)
        return setting.recipe_hash in recipe.run_hashes and _reads(group, recipe)
    return row.method == "embedding" and setting.pooling == row.pooling


def _reads(group: Group, recipe: Recipe) -> bool:
    # the recipe's hash leaves the corpus and the dev set out: the same settings on other sentences
    # are another experiment
    params = group.latest.params
    return (params.get("data.corpus"), params.get("data.dev")) == (
        recipe.data.corpus,
        recipe.data.dev,
    )


def _unpublished(groups: Sequence[Group]) -> Iterator[tuple[PublishedRow, Group]]:
    """A row without published scores for each group, titles made unique."""
    titles = [_title(group) for group in groups]
    uses = Counter(titles)
    for title, group in zip(titles, groups, strict=True):
        setting = group.setting
        length = f" at {setting.max_length} tokens" if setting.max_length else ""
        unique = title if uses[title] == 1 else f"{title}, {setting.content[:8]}{length}"
        yield (
            PublishedRow(
                id="/".join(part for part in _parts(setting) if part),
                title=unique,
                section=OTHER,
                source="",
                method=setting.method,
                model=setting.model,
                pooling=setting.pooling,
                preset="",
                scores={},
            ),
            group,
        )


def _parts(setting: Setting) -> tuple[str, ...]:
    return (
        setting.method,
        setting.model,
        setting.pooling,
        setting.recipe_hash,
        setting.content[:12],
        str(setting.max_length or ""),
    )


def _title(group: Group) -> str:
    setting = group.setting
    # of a folder its name is enough to tell the row; the whole path is in the run
    model = Path(setting.model).name if Path(setting.model).is_absolute() else setting.model
    if setting.method == "embedding":
        return f"{model}, {setting.pooling} pooling"
    names = [n for n in preset_names() if setting.recipe_hash in _preset(n).run_hashes]
    recipe = names[0] if names else f"recipe {setting.recipe_hash}"
    corpus = Path(group.latest.params.get("data.corpus", "")).name
    return f"{setting.method.upper()} {model}, {recipe}" + (f", on {corpus}" if corpus else "")


def _lines(
    layout: Layout, row: PublishedRow, group: Group | None, protocol: str | None
) -> Iterator[dict[str, object]]:
    for column in layout.columns:
        printed = row.scores.get(column.title)
        cell = summarise(group, column) if group else None
        mean = cell.mean if cell else None
        yield {
            "row": row.id,
            "title": row.title,
            "section": row.section,
            "source": row.source,
            "column": column.title,
            "published": printed,
            "mean": mean,
            "sd": cell.sd if cell else None,
            "difference": None if mean is None or printed is None else mean - printed,
            "undefined": cell.undefined if cell else 0,
            "n": cell.n if cell else 0,
            "seeds": " ".join(map(str, group.seeds)) if group else "",
            "runs": " ".join(run.run_id for run in group.runs) if group else "",
            "fill": " && ".join(fill_commands(row, group.seeds if group else None)),
            "made_by": group.latest.tags.get("scd.command", "") if group else "",
            "protocol": protocol if group else None,
        }


def fill_commands(row: PublishedRow, measured: Sequence[int] | None) -> list[str]:
    """The commands that measure what a row lacks; empty where nothing can be run or is missing.

    Args:
        measured: the seeds that were measured, None for no run at all.
    """
    if row.preset:
        return [
            f"python -m scd_core.train --preset {row.preset} --seed {seed}"
            for seed in SEEDS
            if seed not in (measured or ())
        ]
    if row.scores and row.method == "embedding" and measured is None:
        return [f"python -m scd_core.evaluate {row.model} --pooling {row.pooling} --track"]
    return []


def _notes(selection: Selection) -> Iterator[str]:
    if selection.protocol is None:
        yield "Nothing is measured: no finished run carries this table's scores."
    else:
        yield f"Everything measured has the evaluation protocol {selection.protocol}."
    for group in selection.groups:
        for run in group.replaced:
            seed = run.tags.get("scd.seed")
            counted = next(r for r in group.runs if r.tags.get("scd.seed") == seed)
            what = f"seed {seed}" if seed else "evaluation"
            yield (
                f"{_title(group)}, {what} was run again: {counted.run_id}, started last, counts; "
                f"{run.run_id} does not."
            )
    for reason, ids in selection.left_out.items():
        shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
        yield f"Left out, {reason}: {len(ids)} ({shown})."
