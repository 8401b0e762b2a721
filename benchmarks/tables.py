"""Tables from stores of growing size: a real SQLite store, read and built by the whole command.

    python benchmarks/tables.py

MLflow itself writes one training and one evaluation, with all tags, parameters and metrics that
real ones have. The others are copies of these rows inside the database, with seeds, recipes and
ids of their own, since writing 10,000 runs one by one takes an hour. Each size is read and built
in a process of its own; the times are those of the whole command, its start included: on the
clock, and of the processor, which other work on the machine moves less.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from scd_core.evaluation.labelled import TRANSFER
from scd_core.evaluation.tasks import STS_TEST
from scd_core.provenance import collect
from scd_core.recipe import Recipe
from scd_core.tracking import Kind, Tracking

_SEEDS = 3  # runs that share a recipe


@dataclass(frozen=True)
class Command:
    """Times ``python -m reproduce.tables`` on stores of these many runs."""

    sizes: tuple[int, ...] = (1000, 2000, 5000, 10_000)


def template(store: Tracking, kind: Kind) -> str:
    """One run as the project's commands write it. Returns its id."""
    recipe = Recipe()
    tags = {
        "scd.method": "scd",
        "scd.model": recipe.model.name,
        "scd.pooling": recipe.model.pooling,
        "scd.recipe_hash": recipe.hash,
        "scd.data_fingerprint": "d" * 64,
        "scd.model_fingerprint": "m" * 64,
        "scd.seed": "0",
        "scd.protocol": "a" * 12,
        "scd.protocol.transfer": "b" * 12,
    }
    run_id = store.start(kind, "template", tags | collect().tags(), recipe.symbols())
    metrics: dict[str, float | None] = {
        f"test.{task.name}.spearman_all": 70.0 + i for i, task in enumerate(STS_TEST)
    }
    if kind == "evaluation":
        for task in TRANSFER:
            metrics[f"test.{task.name}.accuracy_senteval-default"] = 80.0
            metrics[f"dev.{task.name}.accuracy_senteval-default"] = 80.0
        for name in ("alignment", "uniformity", "effective_rank", "mean_cosine"):
            metrics[f"test.geometry.{name}"] = 0.5
    else:
        losses = ("loss", "self_contrast", "decorrelation", "diagonal", "off_diagonal")
        metrics |= {f"train.{name}": 1.0 for name in losses}
        metrics |= {f"best.dev.{name}.spearman_all": 80.0 for name in ("stsb", "sickr")}
    store.log(run_id, metrics)
    store.finish(run_id)
    return run_id


def multiply(database: Path, templates: list[str], size: int) -> None:
    """Copy the template runs until there are ``size``, turn about."""
    tables = {
        "tags": "key, value",
        "params": "key, value",
        "latest_metrics": "key, value, timestamp, step, is_nan",
    }
    with sqlite3.connect(database) as db:
        columns = [row[1] for row in db.execute("pragma table_info(runs)") if row[1] != "run_uuid"]
        rest = ", ".join(columns)
        for i in range(len(templates), size):
            new, old = f"{i:032x}", templates[i % len(templates)]
            place = i // len(templates)
            recipe = f"{place // _SEEDS:012x}"
            changed = {"scd.seed": str(place % _SEEDS), "scd.recipe_hash": recipe}
            for table, names in {"runs": rest, **tables}.items():
                db.execute(
                    f"insert into {table} (run_uuid, {names}) select ?, {names} from {table} "
                    "where run_uuid = ?",
                    (new, old),
                )
            for key, value in changed.items():
                db.execute(
                    "update tags set value = ? where run_uuid = ? and key = ?", (value, new, key)
                )


def _cpu() -> float:
    """Processor seconds of the ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(command: Command) -> None:
    """Build each store, time the command and print the times."""
    table = Table(title="python -m reproduce.tables, csv of all tables")
    for name in ("runs", "seconds", "CPU seconds", "lines"):
        table.add_column(name, justify="right")
    for size in (0, *command.sizes):
        with tempfile.TemporaryDirectory() as folder:
            uri = f"sqlite:///{folder}/mlflow.db"
            environment = os.environ | {"SCD_HOME": folder, "MLFLOW_TRACKING_URI": uri}
            if size:
                store = Tracking(uri)
                templates = [template(store, kind) for kind in ("train", "evaluation")]
                multiply(Path(folder) / "mlflow.db", templates, size)
            begun, before = time.perf_counter(), _cpu()
            done = subprocess.run(
                [sys.executable, "-m", "reproduce.tables", "--format", "csv"],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            spent = time.perf_counter() - begun
            lines = done.stdout.count("\n")
            table.add_row(str(size), f"{spent:.1f}", f"{_cpu() - before:.1f}", str(lines))
    Console(width=100).print(table)


if __name__ == "__main__":
    main(tyro.cli(Command))
