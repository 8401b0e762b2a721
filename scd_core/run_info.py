"""Runs of MLflow as they are read back, and the fast way to read all of a local store."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class RunInfo:
    """One run as read back: its latest metric values, unrounded, and everything said about it."""

    run_id: str
    name: str
    status: Status
    start_time: int
    """Milliseconds since 1970."""
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, float]
    end_time: int | None = None
    """Milliseconds since 1970; None while it runs."""


def latest_finished(runs: Iterable[RunInfo]) -> RunInfo | None:
    """The finished run that was started last, of equals the one with the largest id, if any."""
    done = [run for run in runs if run.status == "FINISHED"]
    return max(done, key=lambda run: (run.start_time, run.run_id), default=None)


def read_sqlite(file: Path, experiments: Sequence[str]) -> list[RunInfo]:
    """Every run of these experiments that is not deleted, the newest first.

    MLflow's client makes an object of every tag, parameter and value, of which a table of
    thousands of runs needs none; the rows alone are read in a fifth of its time. The file is
    opened for reading only, and all tables are read as they were at one moment.

    Args:
        file: MLflow's SQLite database.
        experiments: MLflow's ids of experiments.

    Raises:
        sqlite3.Error: the file is locked for a minute, or is not laid out as expected.
    """
    chosen = (
        f"from runs where lifecycle_stage = 'active' "
        f"and experiment_id in ({','.join('?' * len(experiments))})"
    )
    ids = [int(one) for one in experiments]
    with contextlib.closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=_LOCK_SECONDS)
    ) as database:
        database.execute("begin")

        def values(table: str, value: str) -> dict[str, dict[str, Any]]:
            found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
            query = f"select run_uuid, key, {value} from {table} where run_uuid in"
            for run_id, key, one in database.execute(f"{query} (select run_uuid {chosen})", ids):
                found[run_id][key] = one
            return found

        tags, params = values("tags", "value"), values("params", "value")
        # SQLite has no NaN of its own
        metrics = values("latest_metrics", "case when is_nan then null else value end")
        runs = database.execute(
            f"select run_uuid, name, status, start_time, end_time {chosen} "
            "order by start_time desc, run_uuid",
            ids,
        ).fetchall()
    return [
        RunInfo(
            run_id=run_id,
            name=name or tags[run_id].get("mlflow.runName", ""),
            status=status,
            start_time=start,
            end_time=end,
            tags=tags[run_id],
            params=params[run_id],
            metrics={k: math.nan if v is None else v for k, v in metrics[run_id].items()},
        )
        for run_id, name, status, start, end in runs
    ]
