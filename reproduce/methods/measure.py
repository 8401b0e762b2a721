"""Fit a method, score it, and record it in MLflow where ``reproduce.tables`` finds it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce.methods.base import Method, record
from scd_core.corpus import Corpus
from scd_core.evaluation.items import FILE, save_items
from scd_core.evaluation.protocols import DEFAULT, PROTOCOLS, SEED
from scd_core.evaluation.suite import Measured, Suite, measure
from scd_core.inputs import DataInput
from scd_core.provenance import collect
from scd_core.tracking import Tracking

_CONTENT = ("fingerprint", "vectors_fingerprint")


@dataclass(frozen=True)
class Fitting:
    """A method with what it is fitted on: one run of a table."""

    method: Method
    corpus: Corpus | None
    model: str
    """The encoder as the published tables name it; empty where there is none."""
    pooling: str = ""

    @property
    def record(self) -> dict[str, Any]:
        """Method, settings and corpus, by name."""
        return record(self.method, self.corpus)

    def identity(self, suite: Suite) -> str:
        """Of the run: the same method on the same content, by the same protocols."""
        return _digest([self.record, suite.protocols(DEFAULT, SEED, None)])[:24]

    def finished(self, suite: Suite, store: Tracking) -> str | None:
        """The id of the finished run with this identity that was started last, if there is one."""
        runs = store.find("evaluation", scd__identity=self.identity(suite))
        done = [run for run in runs if run.status == "FINISHED"]
        return max(done, key=lambda run: run.start_time).run_id if done else None


def measure_and_track(fitting: Fitting, suite: Suite, store: Tracking) -> str:
    """Fit, encode, score and write the run; one that is finished is not run again.

    Returns:
        The run id.

    Raises:
        ValueError: the method cannot be fitted on its corpus.
        TrackingError: the store cannot be written.
    """
    done = fitting.finished(suite, store)
    if done is not None:
        return done
    measured = measure(suite, fitting.method.fit(fitting.corpus))
    name = f"{fitting.method.name} {fitting.model}".strip()
    params = {f"method.{key}": value for key, value in fitting.record.items()}
    params["data.corpus"] = fitting.corpus.name if fitting.corpus else ""
    if suite.transfer:
        classifier = PROTOCOLS[DEFAULT].settings(SEED)
        params |= {f"evaluation.{key}": value for key, value in classifier.items()}
    run_id = store.start("evaluation", name, _tags(fitting, suite, measured), params)
    data = [DataInput(p.name, p.split, p.name, p.fingerprint) for p in suite.pairs]
    data += [DataInput(d.name, "test", d.name, d.fingerprint) for d in suite.transfer]
    if fitting.corpus:
        corpus = fitting.corpus
        data.append(DataInput(corpus.name, "training", corpus.name, corpus.fingerprint))
    store.inputs(run_id, data)
    store.log(run_id, measured.metrics())
    items = {one.score.key: one.items for one in measured.results if one.items is not None}
    with tempfile.TemporaryDirectory() as folder:
        save_items(items, Path(folder) / FILE)
        store.artifact(run_id, Path(folder) / FILE)
    store.finish(run_id)
    return run_id


def _tags(fitting: Fitting, suite: Suite, measured: Measured) -> dict[str, str]:
    told = fitting.record
    seed = told.pop("seed", None)
    content = {k: told.pop(k) for k in list(told) if k.rpartition(".")[2].endswith(_CONTENT)}
    tags = {
        "method": fitting.method.name,
        "model": fitting.model,
        "pooling": fitting.pooling,
        "recipe_hash": _digest(told)[:12],
        "data_fingerprint": _digest(content),
        "identity": fitting.identity(suite),
        "undefined": " ".join(o.score.key for o in measured.results if o.score.value is None),
    }
    tags |= {"seed": str(seed)} if seed is not None else {}
    tags |= {"damaged": "; ".join(suite.damage)} if suite.damage else {}
    for name, value in suite.protocols(DEFAULT, SEED, None).items():
        tags["protocol" if name == "sts" else f"protocol.{name}"] = value
    return collect().tags() | {f"scd.{name}": value for name, value in tags.items()}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
