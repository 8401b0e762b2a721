"""The only writer of MLflow, and with ``run_info`` its only reader.

Every run carries its identity, its recipe under the paper's symbols, where its data came from and
what ran. Addresses are absolute, so that no worker's folder grows a store of its own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from filelock import FileLock

from scd_core import places
from scd_core.mlflow_client import Client, TrackingError, require_server
from scd_core.run_info import RunInfo, Status, read_sqlite

# isort: split
# Its settings are read on import: scd_core.mlflow_client comes first.
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag, ViewType

if TYPE_CHECKING:
    from scd_core.inputs import DataInput  # imports torch, which readers of runs do without

Kind = Literal["train", "search", "trial", "evaluation"]
EXPERIMENTS: dict[Kind, str] = {
    "train": "scd-train",
    "search": "scd-search",
    "trial": "scd-search",
    "evaluation": "scd-evaluate",
}
_PARAM_LIMIT = 500  # of every MLflow version and store; longer values are shortened visibly
_TAG_LIMIT = 5000
_PAGE = 1000
_ARTIFACTS = "mlartifacts"


class Tracking:
    """A connection to one MLflow store."""

    def __init__(self, uri: str | None = None) -> None:
        """Open the store at ``uri`` (default: ``places.tracking_uri()``), made where needed.

        Raises:
            TrackingError: it cannot be opened; within seconds where a server does not answer.
        """
        self.uri = uri or places.tracking_uri()
        parts = urlsplit(self.uri)
        self._local = parts.scheme in ("sqlite", "file", "")
        # Two processes that make the same tables or experiment at once would fail.
        self._making: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._file = places.sqlite_file(self.uri)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._making = FileLock(f"{self._file}.lock")
        elif parts.scheme in ("http", "https"):
            require_server(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        elif parts.scheme in ("", "file"):
            raise TrackingError(f"{self.uri} is no MLflow store; write sqlite:///FILE or a server")
        with self._making:
            self._client = Client(self.uri)
        self._experiments: dict[str, str] = {}

    @property
    def address(self) -> str:
        """The store's address with any password left out, fit for the terminal."""
        return places.without_password(self.uri)

    def start(
        self,
        kind: Kind,
        name: str,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        parent: str | None = None,
    ) -> str:
        """Begin a run, or reopen the unfinished one of the same kind, parent, folder and identity.

        Returns:
            The run id. Parameters already there are not written again.
        """
        run = self._unfinished(kind, tags.get("scd.identity"), parent, tags.get("scd.folder"))
        if run is None:
            return self.create(kind, name, tags, params, parent)
        self.resume(run, tags, params)
        return run.run_id

    def create(
        self,
        kind: Kind,
        name: str,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        parent: str | None = None,
    ) -> str:
        """Begin a run that is known not to be there. Returns its id."""
        labels = {"scd.kind": kind, **tags} | ({"mlflow.parentRunId": parent} if parent else {})
        shown = {key: value[:_TAG_LIMIT] for key, value in labels.items()}
        created = self._client.create_run(self._experiment(kind), run_name=name, tags=shown)
        run_id = str(created.info.run_id)
        self._client.log_batch(run_id, params=[Param(k, _short(v)) for k, v in params.items()])
        return run_id

    def resume(self, run: RunInfo, tags: Mapping[str, str], params: Mapping[str, Any]) -> None:
        """Go on with an unfinished run; parameters already there are not written again."""
        self.reopen(run.run_id)
        self.tag(run.run_id, tags)
        fresh = [Param(k, _short(v)) for k, v in params.items() if k not in run.params]
        self._client.log_batch(run.run_id, params=fresh)

    def reopen(self, run_id: str) -> None:
        """Go on with a run, also with a finished one."""
        self._client.update_run(run_id, status="RUNNING")

    def log(self, run_id: str, metrics: Mapping[str, float | None], step: int = 0) -> None:
        """Write metric values at a training step; undefined ones (None) are left out, never 0."""
        now = int(time.time() * 1000)
        values = [Metric(k, float(v), now, step) for k, v in metrics.items() if v is not None]
        self._client.log_batch(run_id, metrics=values)

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run."""
        self._client.log_batch(run_id, tags=[RunTag(k, v[:_TAG_LIMIT]) for k, v in tags.items()])

    def inputs(self, run_id: str, data: Iterable[DataInput]) -> None:
        """Record the data sets a run reads."""
        self._client.log_inputs(
            run_id,
            [
                DatasetInput(
                    Dataset(d.name, d.fingerprint[:32], "local", json.dumps({"uri": d.source})),
                    [InputTag("mlflow.data.context", d.context)],
                )
                for d in data
            ],
        )

    def artifact(self, run_id: str, path: Path) -> None:
        """Attach a file."""
        self._client.log_artifact(run_id, str(path))

    def text(self, run_id: str, text: str, name: str) -> None:
        """Attach a text as a file of that name."""
        self._client.log_text(run_id, text, name)

    def file(self, run_id: str, name: str) -> Path | None:
        """A file attached to a run, on this machine; None where the run has none of that name.

        Of a local store it is looked for beside the database first: both may have been moved.
        """
        if self._file is not None:
            here = self._file.parent / _ARTIFACTS
            if found := next(here.glob(f"*/{run_id}/artifacts/{name}"), None):
                return found
        if all(found.path != name for found in self._client.list_artifacts(run_id)):
            return None
        return Path(self._client.download_artifacts(run_id, name))

    def finish(
        self, run_id: str, status: Status = "FINISHED", tags: Mapping[str, str] | None = None
    ) -> None:
        """End a run with a status, and last tags written before it."""
        if tags:
            self.tag(run_id, tags)
        self._client.set_terminated(run_id, status)

    def get(self, run_id: str) -> RunInfo:
        """One run by id."""
        return _info(self._client.get_run(run_id))

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """Every logged (step, value) of a metric, by step; those of one step in order of time."""
        found = self._client.get_metric_history(run_id, metric)
        return [(m.step, m.value) for m in sorted(found, key=lambda m: (m.step, m.timestamp))]

    def find(self, kind: Kind | None = None, **tags: str) -> list[RunInfo]:
        """All runs of a kind whose tags match, the newest first; deleted runs are left out.

        A double underscore in a keyword stands for a dot: ``scd__method="scd"``.
        """
        names = {EXPERIMENTS[kind]} if kind else set(EXPERIMENTS.values())
        known = {name: self._client.get_experiment_by_name(name) for name in sorted(names)}
        ids = [e.experiment_id for e in known.values() if e and e.lifecycle_stage == "active"]
        wanted = {key.replace("__", "."): value for key, value in tags.items()}
        wanted |= {"scd.kind": kind} if kind else {}
        runs = None if tags or not ids else self._whole(ids)
        if runs is None:
            runs = self._pages(ids, wanted)
        return [run for run in runs if wanted.items() <= run.tags.items()]

    def _whole(self, ids: Sequence[str]) -> list[RunInfo] | None:
        """Every run of these experiments; None where MLflow's client has to read them: a server,
        or a file that another version of MLflow laid out in another way."""
        if self._file is None:
            return None
        try:
            return read_sqlite(self._file, ids)
        except sqlite3.Error:
            return None

    def _pages(self, ids: Sequence[str], wanted: Mapping[str, str]) -> list[RunInfo]:
        clauses = [f"tags.`{k}` = '{v}'" for k, v in wanted.items() if "'" not in v]
        runs: list[RunInfo] = []
        token: str | None = None
        with _no_garbage_collection():
            while ids:  # the client returns one page and does not say that there are more
                page = self._client.search_runs(
                    ids, " and ".join(clauses), ViewType.ACTIVE_ONLY, _PAGE, page_token=token
                )
                runs += [_info(run) for run in page]
                token = page.token
                if not token:
                    break
        return runs

    def _unfinished(
        self, kind: Kind, identity: str | None, parent: str | None, folder: str | None
    ) -> RunInfo | None:
        if identity is None:
            return None
        found = [
            run
            for run in self.find(kind, scd__identity=identity)
            if run.status != "FINISHED"
            and run.tags.get("mlflow.parentRunId") == parent
            and run.tags.get("scd.folder") == folder
        ]
        return max(found, key=lambda run: run.start_time, default=None)

    def _experiment(self, kind: Kind) -> str:
        name = EXPERIMENTS[kind]
        if name in self._experiments:
            return self._experiments[name]
        with self._making:
            known = self._client.get_experiment_by_name(name)
            if known is not None and known.lifecycle_stage == "deleted":
                raise ValueError(
                    f"the MLflow experiment {name!r} in {self.address} is deleted; restore it with "
                    f"`mlflow experiments restore --experiment-id {known.experiment_id}` or use "
                    "another store (MLFLOW_TRACKING_URI)"
                )
            place = (places.home() / _ARTIFACTS / name).as_uri() if self._local else None
            if known is None:
                try:
                    self._client.create_experiment(name, artifact_location=place)
                except TrackingError:  # another process may have made it meanwhile
                    if self._client.get_experiment_by_name(name) is None:
                        raise
                known = self._client.get_experiment_by_name(name)
            self._experiments[name] = str(known.experiment_id)
        return self._experiments[name]


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A database store makes an object of every tag and value, all of them live; looking through
    them again and again for cycles takes two thirds of the time of a large read."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _short(value: Any) -> str:
    text = str(value)
    if len(text) <= _PARAM_LIMIT:
        return text
    note = f"... ({len(text)} characters; whole in recipe.toml)"
    return text[: _PARAM_LIMIT - len(note)] + note


def _info(run: Run) -> RunInfo:
    return RunInfo(
        run_id=run.info.run_id,
        name=run.info.run_name or "",
        status=run.info.status,
        start_time=run.info.start_time,
        end_time=run.info.end_time,
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        metrics=dict(run.data.metrics),
    )
