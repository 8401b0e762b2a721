"""Test scores in MLflow: what every measured encoder or method leaves for the tables."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scd_core.evaluation.items import FILE, save_items
from scd_core.evaluation.suite import Measured, Suite
from scd_core.inputs import DataInput
from scd_core.provenance import collect
from scd_core.tracking import Tracking


def write_evaluation(
    store: Tracking,
    name: str,
    suite: Suite,
    measured: Measured,
    protocols: Mapping[str, str],
    tags: Mapping[str, str],
    params: Mapping[str, Any],
    data: tuple[DataInput, ...] = (),
    texts: Mapping[str, str] | None = None,
) -> str:
    """Write a finished run of kind "evaluation". Returns its id.

    What was measured on which data by which protocol, and with which code, is said here; ``tags``
    and ``params`` say whose scores they are.

    Args:
        store: where to.
        name: of the run.
        suite: the tasks.
        measured: what they gave.
        protocols: fingerprints by "sts" and "transfer" (``Suite.protocols``).
        tags: with their prefix ``scd.``; one is ``scd.identity``.
        params: of the method and the evaluation.
        data: inputs beside the tasks.
        texts: further artifacts by file name.
    """
    undefined = [name for name, value in measured.metrics().items() if value is None]
    told = {"scd.undefined": " ".join(undefined)} | protocol_tags(protocols)
    if suite.damage:
        told["scd.damaged"] = "; ".join(suite.damage)
    run_id = store.start("evaluation", name, collect().tags() | told | dict(tags), params)
    tasks = [DataInput(p.name, p.split, p.name, p.fingerprint) for p in suite.pairs]
    tasks += [DataInput(d.name, "test", d.name, d.fingerprint) for d in suite.transfer]
    store.inputs(run_id, [*tasks, *data])
    log_measured(store, run_id, measured)
    for file, text in (texts or {}).items():
        store.text(run_id, text, file)
    store.finish(run_id)
    return run_id


def log_measured(store: Tracking, run_id: str, measured: Measured, step: int = 0) -> None:
    """Write all that was measured, at a training step, and the items that scores are made of."""
    store.log(run_id, measured.metrics(), step)
    items = {one.score.key: one.items for one in measured.results if one.items is not None}
    with tempfile.TemporaryDirectory() as folder:
        save_items(items, Path(folder) / FILE)
        store.artifact(run_id, Path(folder) / FILE)


def protocol_tags(protocols: Mapping[str, str]) -> dict[str, str]:
    """Tags of a run with scores by these protocols, from fingerprints by "sts" and "transfer"."""
    plain = "scd.protocol"
    return {plain if t == "sts" else f"{plain}.{t}": value for t, value in protocols.items()}
