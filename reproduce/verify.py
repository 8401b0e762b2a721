"""Run the evaluation behind a row again and compare its scores with those in MLflow."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reproduce.compare import Table
from reproduce.layouts import TRANSFER_PROTOCOL, Layout
from reproduce.rows import FITTED

if TYPE_CHECKING:
    from scd_core.run_info import RunInfo
    from scd_core.tracking import Tracking

TOLERANCE = 0.01
"""Points. Encoding in other batches, with other threads or on another device moves a cosine by
about 1e-7, and of a correlation less than this; more is another model, other data or other code."""


@dataclass(frozen=True)
class Check:
    """A score of one run, as tracked and as measured again."""

    run_id: str
    key: str
    tracked: float | None
    again: float | None

    @property
    def agrees(self) -> bool:
        """Whether both are undefined, or no more than ``TOLERANCE`` apart."""
        if self.tracked is None or self.again is None:
            return self.tracked is self.again
        return abs(self.tracked - self.again) <= TOLERANCE


def verify(table: Table, row: str, store: Tracking, data_dir: Path | None) -> list[Check]:
    """Evaluate every run of a row again; what was fitted is fitted again.

    Args:
        table: holds the row; its columns are compared.
        row: id or title.
        store: to read the runs.
        data_dir: folder that holds ``senteval/``.

    Raises:
        ValueError: there is no such row, it has no runs, it cannot be made again from here, or
            what it read or how it scored has changed.
    """
    frame = table.frame
    found = frame[(frame["row"] == row) | (frame["title"] == row)]
    if found["row"].nunique() != 1:
        measured = list(dict.fromkeys(frame.loc[frame["n"] > 0, "row"]))
        raise ValueError(
            f"--verify {row!r} names {found['row'].nunique()} rows of {table.layout.title!r}; the "
            f"measured ones are: {measured or 'none'}"
        )
    if not found["runs"].iloc[0]:
        raise ValueError(f"--verify {row!r}: nothing is measured. {found['fill'].iloc[0]}")
    return [
        check
        for run_id in found["runs"].iloc[0].split()
        for check in _check(table.layout, store.get(run_id), data_dir)
    ]


def _check(layout: Layout, run: RunInfo, data_dir: Path | None) -> Iterator[Check]:
    kind = "transfer" if layout.protocol_tag == TRANSFER_PROTOCOL else "sts"
    if run.tags.get("scd.method") in FITTED:
        scores = _fitted(run, kind, data_dir)
    else:
        scores = _evaluated(layout, run, kind, data_dir)
    for key in dict.fromkeys(key for column in layout.columns for key in column.keys):
        if key in scores:
            yield Check(run.run_id, key, run.metrics.get(key), scores[key])


def _evaluated(
    layout: Layout, run: RunInfo, kind: str, data_dir: Path | None
) -> dict[str, float | None]:
    """Scores of an encoder, by ``scd_core.evaluate``."""
    from scd_core import evaluate  # here: torch and MLflow take seconds

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.json"
        arguments = [*arguments_of(run), "--tasks", kind, "--no-intervals", "--json", str(path)]
        evaluate.run(arguments + (["--data-dir", str(data_dir)] if data_dir else []))
        report = json.loads(path.read_text(encoding="utf-8"))
    for name, tracked, again in (
        ("evaluation protocol", run.tags.get(layout.protocol_tag), report["protocols"][kind]),
        ("weights", _weights(run), report["model_fingerprint"]),
    ):
        if tracked is not None and tracked != again:
            raise ValueError(
                f"run {run.run_id}: its {name} is {tracked}, and now {again}: not the same thing "
                "is measured. Take the code, data and model of that run; its tag provenance.commit "
                "and its inputs say which"
            )
    return {score["key"]: score["value"] for score in report["scores"]}


def _fitted(run: RunInfo, kind: str, data_dir: Path | None) -> dict[str, float | None]:
    """Scores of a method that is fitted once more, if ``reproduce.runs`` makes this very run."""
    import torch

    from reproduce.jobs import Fitted  # here: as above
    from reproduce.needs import Needs
    from scd_core.evaluation.suite import load_suite, measure

    tags = run.tags
    if tags["scd.method"] == "glove":
        raise ValueError(
            f"run {run.run_id}: --verify takes no file of word vectors; it was made by: "
            f"{tags.get('scd.command')}"
        )
    torch.set_num_threads(int(tags.get("provenance.threads", torch.get_num_threads())))
    seeds = (int(tags.get("scd.seed", "0")),)
    read = run.params.get("data.corpus", "")
    nli = None if read.startswith("target") else read
    needs = Needs(tags["scd.model"], seeds, None, None, nli, data_dir)
    jobs, _ = needs.jobs(("figure2",), (tags["scd.method"],))
    for job in jobs:
        known = {kind: job.tests.protocols.get(kind, "")}
        if isinstance(job, Fitted) and job.fitting.identity(known) == tags["scd.identity"]:
            encode = job.fitting.method.fit(job.fitting.corpus)
            return measure(load_suite((kind,), data_dir), encode).metrics()
    raise ValueError(
        f"run {run.run_id}: method, encoder or sentences are not those that reproduce.runs would "
        f"fit now, so it is not fitted again; it was made by: {tags.get('scd.command')}"
    )


def arguments_of(run: RunInfo) -> list[str]:
    """Of ``scd_core.evaluate``, to score what a run scored: model and how sentences are read.

    Raises:
        ValueError: the run's method is none that ``scd_core.evaluate`` runs.
    """
    tags, params = run.tags, run.params
    trained = tags.get("scd.trained_by") or (run.run_id if tags["scd.kind"] == "train" else None)
    if not trained and tags.get("scd.method") != "embedding":
        raise ValueError(
            f"run {run.run_id} is of the method {tags.get('scd.method')!r}, which "
            "scd_core.evaluate does not run; it was made by: "
            f"{tags.get('scd.command', 'an unknown command')}"
        )
    model, _, revision = tags["scd.model"].partition("@")
    if Path(tags["scd.model"]).is_absolute():  # only of the Hub's models it names a revision
        model, revision = tags["scd.model"], ""
    chosen = [trained] if trained else [model, *(["--revision", revision] if revision else [])]
    chosen += ["--pooling", tags["scd.pooling"]]
    for flag, name in (("--max-length", "max_length"), ("--seed", "seed")):
        if f"evaluation.{name}" in params:
            chosen += [flag, params[f"evaluation.{name}"]]
    return chosen


def _weights(run: RunInfo) -> str | None:
    # a training's own fingerprint is of the weights that it started from
    return run.tags.get("scd.model_fingerprint") if run.tags["scd.kind"] == "evaluation" else None
