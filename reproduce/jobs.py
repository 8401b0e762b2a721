"""What measures a row of a table: a training, an evaluation, or a method fitted on sentences."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reproduce.methods.measure import Fitting, measure_and_track
from scd_core import evaluate, places, train
from scd_core.evaluation.suite import load_suite
from scd_core.evaluation_run import protocol_tags
from scd_core.models import model_fingerprint, model_folder
from scd_core.pooling import Pooling
from scd_core.recipe import Recipe
from scd_core.run_folder import model_path
from scd_core.run_info import RunInfo, latest_finished
from scd_core.tracking import Tracking


@dataclass(frozen=True)
class Tasks:
    """Groups of test tasks that a job is to have scores of; picklable, for a worker."""

    groups: tuple[str, ...]
    """As ``--tasks`` of scd_core.evaluate names them: sts, transfer."""
    protocols: Mapping[str, str]
    data_dir: Path | None
    sentences: int
    """To encode: the distinct ones of each group."""

    def __or__(self, other: Tasks) -> Tasks:
        """The groups of both."""
        groups = tuple(dict.fromkeys(self.groups + other.groups))
        new = set(groups) - set(self.groups)
        return dataclasses.replace(
            self,
            groups=groups,
            protocols={**self.protocols, **other.protocols},
            sentences=self.sentences + (other.sentences if new else 0),
        )

    def tag(self, group: str) -> dict[str, str]:
        """That a run with the group's scores has, by this protocol."""
        return protocol_tags({group: self.protocols[group]})

    def flags(self, group: str) -> list[str]:
        """Of ``python -m scd_core.evaluate``."""
        where = ["--data-dir", str(self.data_dir)] if self.data_dir else []
        return ["--tasks", group, "--track", *where]


@dataclass(frozen=True)
class Job(ABC):
    """Runs of one encoder on one or several groups of test tasks; picklable, for a worker."""

    title: str
    """For people."""
    tests: Tasks
    """What it is measured on."""

    @property
    def key(self) -> str:
        """Of different jobs, different ones."""
        return self.title

    @abstractmethod
    def finished(self, group: str, store: Tracking) -> str | None:
        """The finished run with these scores and this identity, if there is one."""

    @abstractmethod
    def measure(self, group: str, store: Tracking) -> int:
        """Leave such a run. Returns an exit code, 0 where it is there now."""


@dataclass(frozen=True)
class Training(Job):
    """A recipe trained with a seed; an evaluation of it where its own test scores are others."""

    recipe: Recipe
    identity: str
    """Of the run."""

    @property
    def key(self) -> str:
        """The run's identity."""
        return self.identity

    def finished(self, group: str, store: Tracking) -> str | None:
        """A training, or an evaluation of one with the recipe's pooling."""
        tag, trainings = self.tests.tag(group), self._trained(store)
        found = [run for run in trainings if tag.items() <= run.tags.items()]
        for run in trainings:
            asked = {"scd.trained_by": run.run_id, "scd.pooling": self.recipe.model.pooling}
            found += store.find("evaluation", **tag, **asked)
        last = latest_finished(found)
        return last.run_id if last else None

    def measure(self, group: str, store: Tracking) -> int:
        """Train where that is to be done; then evaluate where the scores are still not there."""
        if self.untrained(store):
            file = places.cache() / "recipes" / f"{self.identity}.toml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.recipe.to_toml(), encoding="utf-8")
            if code := train.run(["--recipe", str(file)]):
                return code
        if self.finished(group, store) is not None:
            return 0
        run = latest_finished(self._with_model(store))
        if run is None:
            raise ValueError(f"the training {self.identity} left no finished run with its model")
        return evaluate.run([run.run_id, *self.tests.flags(group)])

    def untrained(self, store: Tracking) -> bool:
        """Whether it is still to be trained: it never was, or its model is not here any more."""
        return not self._with_model(store)

    def _trained(self, store: Tracking) -> list[RunInfo]:
        runs = store.find("train", **{"scd.identity": self.identity})
        return [run for run in runs if run.status == "FINISHED"]

    def _with_model(self, store: Tracking) -> list[RunInfo]:
        return [r for r in self._trained(store) if model_path(Path(r.tags["scd.folder"])).is_dir()]


@dataclass(frozen=True)
class Untrained(Job):
    """An encoder as it comes."""

    model: str
    pooling: Pooling

    def finished(self, group: str, store: Tracking) -> str | None:
        """An evaluation of these weights, by this name, with this pooling."""
        told = {
            "scd.method": "embedding",
            "scd.model": self.model,
            "scd.pooling": self.pooling,
            "scd.model_fingerprint": model_fingerprint(model_folder(self.model)),
        }
        run = latest_finished(store.find("evaluation", **told, **self.tests.tag(group)))
        return run.run_id if run else None

    def measure(self, group: str, store: Tracking) -> int:
        """Evaluate it."""
        return evaluate.run([self.model, "--pooling", self.pooling, *self.tests.flags(group)])


@dataclass(frozen=True)
class Fitted(Job):
    """A method fitted on sentences, or on none."""

    fitting: Fitting

    def finished(self, group: str, store: Tracking) -> str | None:
        """The run of this fitting."""
        return self.fitting.finished({group: self.tests.protocols[group]}, store)

    def measure(self, group: str, store: Tracking) -> int:
        """Fit it, and score it."""
        measure_and_track(self.fitting, load_suite((group,), self.tests.data_dir), store)
        return 0
