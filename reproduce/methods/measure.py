"""Fit a method, score it, and record it in MLflow where ``reproduce.tables`` finds it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reproduce.methods.base import Method, record
from scd_core.corpus import Corpus
from scd_core.evaluation.protocols import DEFAULT, PROTOCOLS, SEED
from scd_core.evaluation.suite import Suite, measure
from scd_core.evaluation_run import write_evaluation
from scd_core.inputs import DataInput
from scd_core.run_info import latest_finished
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
    source: str = ""
    """Where the corpus lies, as ``Data.corpus`` names it, where its name does not say that."""

    @property
    def record(self) -> dict[str, Any]:
        """Method, settings and corpus, by name."""
        return record(self.method, self.corpus)

    def identity(self, protocols: Mapping[str, str]) -> str:
        """Of the run: the same method on the same content, by the same protocols."""
        return _digest([self.record, protocols])[:24]

    def finished(self, protocols: Mapping[str, str], store: Tracking) -> str | None:
        """The id of the finished run with this identity that was started last, if there is one.

        Args:
            protocols: fingerprints by group of tasks (``Suite.protocols``).
        """
        found = latest_finished(store.find("evaluation", scd__identity=self.identity(protocols)))
        return found.run_id if found else None


def measure_and_track(fitting: Fitting, suite: Suite, store: Tracking) -> str:
    """Fit, encode, score and write the run; one that is finished is not run again.

    Returns:
        The run id.

    Raises:
        ValueError: the method cannot be fitted on its corpus.
        TrackingError: the store cannot be written.
    """
    protocols = suite.protocols(DEFAULT, SEED, None)
    done = fitting.finished(protocols, store)
    if done is not None:
        return done
    measured = measure(suite, fitting.method.fit(fitting.corpus))
    name = f"{fitting.method.name} {fitting.model}".strip()
    params = {f"method.{key}": value for key, value in fitting.record.items()}
    params["data.corpus"] = fitting.source or (fitting.corpus.name if fitting.corpus else "")
    if suite.transfer:
        classifier = PROTOCOLS[DEFAULT].settings(SEED)
        params |= {f"evaluation.{key}": value for key, value in classifier.items()}
    corpus = fitting.corpus
    data = DataInput(corpus.name, "training", corpus.name, corpus.fingerprint) if corpus else None
    return write_evaluation(
        store,
        name,
        suite,
        measured,
        protocols,
        _tags(fitting, protocols),
        params,
        (data,) if data else (),
    )


def _tags(fitting: Fitting, protocols: Mapping[str, str]) -> dict[str, str]:
    told = fitting.record
    seed = told.pop("seed", None)
    content = {k: told.pop(k) for k in list(told) if k.rpartition(".")[2].endswith(_CONTENT)}
    tags = {
        "method": fitting.method.name,
        "model": fitting.model,
        "pooling": fitting.pooling,
        "recipe_hash": _digest(told)[:12],
        "data_fingerprint": _digest(content),
        "identity": fitting.identity(protocols),
    }
    tags |= {"seed": str(seed)} if seed is not None else {}
    return {f"scd.{name}": value for name, value in tags.items()}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
