"""Which runs enter a table, and their mean over seeds.

The rules, in order:

1. Only runs of kind "train" and "evaluation" that are FINISHED; an evaluation of a training only
   where that training is too. Searches (whose parent carries a copy of its best trial's score) and
   their trials never count.
2. Only runs that carry every test score of the table; a score that is listed in the run's tag
   ``scd.undefined`` counts as carried and has no value.
3. Only runs of one evaluation protocol (``scd.protocol`` for similarity, ``scd.protocol.transfer``
   for transfer tasks): the one asked for, else the one with most runs, of those the one with the
   latest run.
4. Runs of one ``Setting`` are one row. Where a seed was run more than once, the run started last
   counts; the others are kept as ``Group.replaced`` so that the choice can be shown.

Nothing here depends on the order in which runs are given.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing MLflow takes seconds, and nothing here calls it
    from scd_core.run_info import RunInfo

KINDS = ("train", "evaluation")


class UnknownProtocolError(ValueError):
    """The protocol asked for is that of no run that could enter a table."""


@dataclass(frozen=True)
class Column:
    """A column of a table: the plain mean of one or several metrics of a run."""

    title: str
    keys: tuple[str, ...]
    """Metric names, e.g. ``test.sts12.spearman_all``; an average names all it averages."""


@dataclass(frozen=True, order=True)
class Setting:
    """What runs of one row share: everything but the seed and the protocol."""

    method: str
    model: str
    pooling: str
    recipe_hash: str
    """Empty for an evaluated model, which has no recipe."""
    content: str
    """Fingerprint of the training data, or of the weights where nothing was trained: the recipe's
    hash says nothing of either, and what differs in them must not be averaged."""
    max_length: int
    """Tokens a sentence was cut to where a model was only evaluated; 0 for a trained model, which
    is always tested whole."""


@dataclass(frozen=True)
class Group:
    """The runs behind one row of a table."""

    setting: Setting
    runs: tuple[RunInfo, ...]
    """One a seed, by seed; a run without a seed comes first."""
    replaced: tuple[RunInfo, ...]
    """Finished runs of the same setting and seed that were started earlier; not counted."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the counted runs, ascending; empty where the runs have none."""
        return tuple(seed for run in self.runs if (seed := _seed(run)) is not None)

    @property
    def latest(self) -> RunInfo:
        """The counted run that was started last."""
        return max(self.runs, key=_age)


@dataclass(frozen=True)
class Selection:
    """What was chosen for a table, and what was not."""

    protocol: str | None
    """The table's protocol; None where no run can enter."""
    groups: tuple[Group, ...]
    """By setting."""
    left_out: dict[str, tuple[str, ...]]
    """Run ids by the reason they do not count, without those that were replaced."""


@dataclass(frozen=True)
class Summary:
    """One cell: mean and spread over a group's runs, in points."""

    mean: float | None
    """Mean of the runs' unrounded values; None if it is undefined in any of them."""
    sd: float | None
    """Sample standard deviation (n - 1); None for fewer than two runs."""
    n: int
    """Runs behind the cell, one a seed."""
    undefined: int
    """Those of them in which the value is undefined."""


def select(
    runs: Iterable[RunInfo],
    columns: Sequence[Column],
    protocol: str | None = None,
    protocol_tag: str = "scd.protocol",
) -> Selection:
    """Choose the runs of a table with those columns; the module's docstring has the rules.

    Args:
        runs: those that may enter, with the trainings behind evaluations.
        protocol: a protocol's fingerprint or a beginning of it that fits only one.
        protocol_tag: the tag that holds it.

    Raises:
        UnknownProtocolError: no run that could enter has that protocol.
        ValueError: several protocols begin so.
    """
    runs = sorted(runs, key=_age)
    keys = sorted({key for column in columns for key in column.keys})
    finished = {run.run_id for run in runs if run.status == "FINISHED"}
    left_out: dict[str, list[str]] = {}
    candidates: dict[str, list[RunInfo]] = {}
    for run in runs:
        if reason := _reason_against(run, keys, protocol_tag, finished):
            left_out.setdefault(reason, []).append(run.run_id)
        else:
            candidates.setdefault(run.tags[protocol_tag], []).append(run)
    chosen = _choose_protocol(candidates, protocol)
    for name in sorted(candidates.keys() - {chosen}):
        left_out[f"of another protocol, {name}"] = [run.run_id for run in candidates[name]]
    return Selection(
        protocol=chosen,
        groups=_groups(candidates[chosen]) if chosen is not None else (),
        left_out={reason: tuple(ids) for reason, ids in sorted(left_out.items())},
    )


def value(run: RunInfo, column: Column) -> float | None:
    """A run's value in a column, unrounded points; None if a score it needs is undefined."""
    undefined = _undefined(run)
    scores = [run.metrics.get(key, math.nan) for key in column.keys if key not in undefined]
    # a database store hands NaN back as 0 and infinity as 1.8e308; correlations and accuracies in
    # points lie within +-100
    if len(scores) < len(column.keys) or not all(abs(score) <= 100 for score in scores):
        return None
    return math.fsum(scores) / len(scores)


def summarise(group: Group, column: Column) -> Summary:
    """Mean and sample standard deviation of a group in one column, over its runs."""
    found = [value(run, column) for run in group.runs]
    values = [v for v in found if v is not None]
    complete = len(values) == len(found)
    return Summary(
        mean=statistics.fmean(values) if complete else None,
        sd=statistics.stdev(values) if complete and len(values) > 1 else None,
        n=len(found),
        undefined=len(found) - len(values),
    )


def _reason_against(
    run: RunInfo, keys: Sequence[str], protocol_tag: str, finished: Collection[str]
) -> str | None:
    kind = run.tags.get("scd.kind", "none")
    if kind not in KINDS:
        return f"of kind {kind}"
    if run.status != "FINISHED":
        return f"{run.status}, not FINISHED"
    if run.tags.get("scd.trained_by", run.run_id) not in finished:
        return "of a training that is not FINISHED, or not there"
    undefined = _undefined(run)
    missing = [key for key in keys if key not in run.metrics and key not in undefined]
    if len(missing) == len(keys):
        return "without any of the table's scores"
    if missing:
        return f"without {', '.join(missing)}"
    return None if run.tags.get(protocol_tag) else f"without the tag {protocol_tag}"


def _choose_protocol(candidates: dict[str, list[RunInfo]], asked: str | None) -> str | None:
    if asked is None:
        return max(
            candidates,
            key=lambda name: (len(candidates[name]), _age(candidates[name][-1])),
            default=None,
        )
    found = [asked] if asked in candidates else [p for p in candidates if p.startswith(asked)]
    if len(found) != 1:
        known = sorted(candidates) or "none: no run can enter this table"
        kind = ValueError if found else UnknownProtocolError
        raise kind(
            f"protocol = {asked!r} fits {len(found)} protocols of the finished runs; those there "
            f"are: {known}"
        )
    return found[0]


def _groups(runs: Sequence[RunInfo]) -> tuple[Group, ...]:
    """Group runs that are sorted from the oldest to the latest."""
    by_setting: dict[Setting, dict[int | None, list[RunInfo]]] = {}
    for run in runs:
        by_setting.setdefault(_setting(run), {}).setdefault(_seed(run), []).append(run)
    return tuple(
        Group(
            setting,
            runs=tuple(by_seed[s][-1] for s in _seeds_in_order(by_seed)),
            replaced=tuple(run for s in _seeds_in_order(by_seed) for run in by_seed[s][:-1]),
        )
        for setting, by_seed in sorted(by_setting.items())
    )


def _seeds_in_order(seeds: Iterable[int | None]) -> list[int | None]:
    return sorted(seeds, key=lambda seed: (seed is not None, seed or 0))


def _setting(run: RunInfo) -> Setting:
    tags = run.tags
    embedding = tags.get("scd.method") == "embedding"
    weights = tags.get("scd.model_fingerprint", "")
    length = run.params.get("evaluation.max_length", "") if embedding else ""
    return Setting(
        method=tags.get("scd.method", ""),
        model=tags.get("scd.model", ""),
        pooling=tags.get("scd.pooling", ""),
        recipe_hash="" if embedding else tags.get("scd.recipe_hash", ""),
        content=weights if embedding else tags.get("scd.data_fingerprint") or weights,
        max_length=_whole_number(length) or 0,
    )


def _seed(run: RunInfo) -> int | None:
    return _whole_number(run.tags.get("scd.seed", ""))


def _whole_number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _undefined(run: RunInfo) -> set[str]:
    """Metric names in the tag ``scd.undefined``, which separates them by commas or blanks."""
    text = run.tags.get("scd.undefined")
    return set(text.replace(",", " ").split()) if text else set()


def _age(run: RunInfo) -> tuple[int, str]:
    # the id decides between runs of one millisecond, so that the choice is the same every time
    return run.start_time, run.run_id
