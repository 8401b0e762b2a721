"""Published rows beside measured ones, in one frame.

A table is a ``Layout`` and its published rows; the measured side comes from
``reproduce.aggregate``. Every format is rendered from ``Table.frame``, which keeps all digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from reproduce import rows as row_names
from reproduce.aggregate import Group, Selection, Setting, select, summarise
from reproduce.fidelity import BASES, Variant, variants
from reproduce.fill import Trainings, Wanted, as_measured, shown_place
from reproduce.layouts import LAYOUTS, Layout, Name
from reproduce.published import (
    FITTED_ON,
    FITTED_POOLING,
    GLOVE_VECTORS,
    OVER_ENCODER,
    PUBLISHED_MODELS,
    PublishedRow,
    published_table,
)
from reproduce.verdicts import with_figure, with_row
from scd_core.recipe import Recipe

if TYPE_CHECKING:  # importing MLflow takes seconds
    from scd_core.run_info import RunInfo


@dataclass(frozen=True)
class Table:
    """A table of published and measured rows."""

    layout: Layout
    protocol: str | None
    """Fingerprint of the evaluation protocol of everything measured in it."""
    frame: pd.DataFrame
    """One line for each row and column of the table (``row, column`` is the key), in the table's
    order: row, title, section ("other": not in the paper), source, method, model, pooling, role,
    recipe_hash, content (fingerprint of the data) and precision (all three of what was measured),
    column, published, mean, sd, difference, verdict, undefined (runs), n (runs), seeds, runs (ids),
    fill (commands for what is not measured), made_by (command of the latest run), protocol. The
    difference is to the published figure, in the fidelity table to the first row of the section.
    Points, unrounded; NaN is an empty cell."""
    notes: tuple[str, ...]
    """What was chosen and left out, a sentence each."""

    @property
    def columns(self) -> list[str]:
        """Titles of its columns."""
        return [column.title for column in self.layout.columns]


def build(name: Name, runs: Iterable[RunInfo], protocol: str | None = None) -> Table:
    """Put the measured runs beside the published rows of a table.

    Args:
        name: a key of ``LAYOUTS``.
        runs: any runs; ``reproduce.aggregate`` says which of them enter.
        protocol: a protocol's fingerprint or its beginning; None takes the one with most runs.

    Raises:
        UnknownProtocolError: no run that could enter has that protocol.
        ValueError: several protocols begin so.
    """
    layout, runs = LAYOUTS[name], list(runs)
    selection = select(runs, layout.columns, protocol, layout.protocol_tag)
    trainings = Trainings(runs, layout)
    notes = list(_notes(selection))
    if name == "fidelity":
        lines = list(_fidelity(layout, selection, trainings))
    else:
        single = _of_one_changed_setting(selection)
        lines = list(_published(layout, selection, trainings, single))
        if single:
            notes.append(f"In the fidelity table alone: {len(single)} of one changed setting.")
    return Table(layout, selection.protocol, pd.DataFrame(lines), (*layout.remarks, *notes))


@dataclass(frozen=True)
class _Switched:
    """A row of the fidelity table: a base's recipe, or it with a variant."""

    base: str
    variant: Variant | None
    recipe: Recipe
    group: Group | None
    first: Group | None
    """Of the base itself."""


def _switched(selection: Selection) -> Iterator[_Switched]:
    """Rows of the fidelity table, a base and its variants after another; under the encoder that a
    base is made for, every other that was trained with it.

    A variant's group has the base's content and, but for what it changes, its precision: a
    difference that something else makes as well would say nothing of the setting.
    """
    by_hash: dict[str, list[Group]] = {}
    for group in selection.groups:
        by_hash.setdefault(group.setting.recipe_hash, []).append(group)
    for base in BASES:
        for recipe in _on_encoders(row_names.known_preset(base), by_hash):
            first = _best(_of(recipe, by_hash))
            yield _Switched(base, None, recipe, first, first)
            for variant in variants(base):
                changed = variant.of(recipe)
                groups = [*_of(as_measured(changed, first) if first else changed, by_hash)]
                if first:
                    groups = [g for g in groups if g.setting.content == first.setting.content]
                yield _Switched(base, variant, changed, _best(groups), first)


def _on_encoders(base: Recipe, by_hash: Mapping[str, Sequence[Group]]) -> Iterator[Recipe]:
    """A base on its own encoder, then on those others that were trained with it."""
    yield base
    groups = (group for name in base.run_hashes for group in by_hash.get(name, ()))
    own = {row_names.known_preset(name).model.name for name in BASES}
    for name in sorted({group.setting.model for group in groups} - own):
        yield replace(base, model=replace(base.model, name=name))


def _of_one_changed_setting(selection: Selection) -> set[Setting]:
    return {
        row.group.setting
        for row in _switched(selection)
        if row.first and row.group and row.variant and len(row.variant.settings) == 1
    }


def _published(
    layout: Layout, selection: Selection, trainings: Trainings, elsewhere: set[Setting]
) -> Iterator[dict[str, object]]:
    printed = [row for name in layout.published for row in published_table(name).rows]
    used = set(elsewhere)
    for row in printed:
        group = _best(group for group in selection.groups if _fits(row, group))
        used |= {group.setting} if group else set()
        wanted = None
        if row.preset:
            wanted = Wanted(row_names.known_preset(row.preset), f"--preset {row.preset}")
            wanted = wanted.like(group) if group else wanted
        fill = trainings.fill(row, group, wanted)
        yield from _lines(layout, row, group, selection, fill)
    others = [
        group for group in selection.groups if layout.shows(group) and group.setting not in used
    ]
    for row, group in row_names.unpublished(others):
        yield from _lines(layout, row, group, selection, ())


def _fidelity(
    layout: Layout, selection: Selection, trainings: Trainings
) -> Iterator[dict[str, object]]:
    for switched in _switched(selection):
        variant, first = switched.variant, switched.first
        row = row_names.fidelity(switched.base, switched.recipe, variant)
        wanted = Wanted(switched.recipe, _flags(switched))
        fill = trainings.fill(row, switched.group, wanted.like(first) if first else wanted)
        yield from _lines(layout, row, switched.group, selection, fill, first)


def _flags(switched: _Switched) -> str:
    name, variant = switched.recipe.model.name, switched.variant
    other = name != row_names.known_preset(switched.base).model.name
    encoder = f" --model.name {shown_place(name)}" if other else ""
    return f"--preset {switched.base}{encoder}" + (f" {variant.flags}" if variant else "")


def _of(recipe: Recipe, by_hash: Mapping[str, Sequence[Group]]) -> Iterator[Group]:
    """The groups of a recipe, in whichever precision it was trained."""
    found = (group for name in sorted(recipe.run_hashes) for group in by_hash.get(name, ()))
    return (group for group in found if _is(recipe, group))


def _best(groups: Iterable[Group]) -> Group | None:
    """Of several that fit a row: the same recipe on other data, or a name with other weights.

    The one with most seeds is taken, of those the one that cut sentences least, then the one with
    the latest run; the others stay rows of their own.
    """
    return max(
        groups,
        key=lambda g: (len(g.runs), g.setting.max_length, g.latest.start_time, g.latest.run_id),
        default=None,
    )


def _fits(row: PublishedRow, group: Group) -> bool:
    setting = group.setting
    if setting.method != row.method or row.model not in ("", setting.model):
        return False
    if row.preset:
        return _is(row_names.known_preset(row.preset), group)
    params = group.latest.params
    if setting.method == "glove":
        return params.get("method.vectors") == GLOVE_VECTORS
    if setting.method in OVER_ENCODER:
        fitted = setting.pooling, params.get("data.corpus"), params.get("method.dimensions", "None")
        return fitted == (FITTED_POOLING, FITTED_ON, "None")
    return setting.method in row_names.UNTRAINED and row.pooling in ("", setting.pooling)


def _is(recipe: Recipe, group: Group) -> bool:
    """Whether a group is of that recipe, on what it says it reads.

    The hash leaves the corpus and the dev set out: the same settings on other sentences are another
    experiment. Runs of a group read the same content, by whichever name. Only figures of encoders
    that the paper does not have compare with nothing published, on whichever content.
    """
    setting = group.setting
    told = setting.model, setting.pooling
    if told != (recipe.model.name, recipe.model.pooling):
        return False
    if setting.recipe_hash not in recipe.run_hashes:
        return False
    read = {(run.params.get("data.corpus"), run.params.get("data.dev")) for run in group.runs}
    published = recipe.model.name in PUBLISHED_MODELS
    return not published or (recipe.data.corpus, recipe.data.dev) in read


def _lines(
    layout: Layout,
    row: PublishedRow,
    group: Group | None,
    selection: Selection,
    fill: Iterable[str],
    first: Group | None = None,
) -> Iterator[dict[str, object]]:
    """The cells of a row; in the fidelity table compared with the ``first`` of the section."""
    shared = {
        "n": len(group.runs) if group else 0,
        "seeds": " ".join(map(str, group.seeds)) if group else "",
        "runs": " ".join(run.run_id for run in group.runs) if group else "",
        "fill": " && ".join(fill),
        "made_by": group.latest.tags.get("scd.command", "") if group else "",
        "protocol": selection.protocol if group else None,
    }
    role = row_names.role(row, group)
    for column in layout.columns:
        printed = row.scores.get(column.title)
        cell = summarise(group, column) if group else None
        if layout.name == "fidelity":
            other = summarise(first, column) if first and first is not group else None
            compared = with_row(cell, other)
        else:
            compared = with_figure(cell, printed, bool(group and group.seeds))
        yield {
            "row": row.id,
            "title": row.title,
            "section": row.section,
            "source": row.source,
            "method": row.method,
            "model": row.model,
            "pooling": row.pooling,
            "role": role,
            "recipe_hash": group.setting.recipe_hash if group else "",
            "content": group.setting.content if group else "",
            "precision": group.latest.params.get("optim.precision", "") if group else "",
            "column": column.title,
            "published": printed,
            "mean": cell.mean if cell else None,
            "sd": cell.sd if cell else None,
            "difference": compared.difference,
            "verdict": compared.verdict,
            "undefined": cell.undefined if cell else 0,
            **shared,
        }


def _notes(selection: Selection) -> Iterator[str]:
    if selection.protocol is None:
        yield "Nothing is measured: no finished run carries this table's scores."
    else:
        yield f"Everything measured has the evaluation protocol {selection.protocol}."
    for group in selection.groups:
        yield from _repeats(group)
    for reason, ids in selection.left_out.items():
        shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
        yield f"Left out, {reason}: {len(ids)} ({shown})."


def _repeats(group: Group) -> Iterator[str]:
    counted: dict[str | None, Sequence[str]] = {}
    for run in group.replaced:
        seed = run.tags.get("scd.seed")
        counted.setdefault(seed, [r.run_id for r in group.runs if r.tags.get("scd.seed") == seed])
        what = f"seed {seed}" if seed else "evaluation"
        yield (
            f"{row_names.title(group)}, {what} was run again: {counted[seed][0]}, started last, "
            f"counts; {run.run_id} does not."
        )
