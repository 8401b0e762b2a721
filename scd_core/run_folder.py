"""The folder of one run: whose it is, and what came out of it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from scd_core.evaluation.sts import Score
from scd_core.inputs import Inputs

LOCK = "lock"


@dataclass(frozen=True)
class Evaluation:
    """Dev scores after ``step`` of ``total`` steps, and whether they are the best so far.

    ``geometry`` is that of the first dev set's vectors, by tracked name; it selects nothing.
    """

    step: int
    total: int
    scores: tuple[Score, ...]
    selected: float | None
    """The score that chooses the checkpoint; None where it is undefined, which is never best."""
    best: bool
    geometry: dict[str, float | None] = field(default_factory=dict)

    def metrics(self) -> dict[str, float | None]:
        """Scores and geometry by their metric name."""
        return {score.key: score.value for score in self.scores} | self.geometry


@dataclass(frozen=True)
class Result:
    """What a finished run came to. ``best`` is None where every dev score was undefined."""

    best: Evaluation | None
    final: Evaluation


def model_path(folder: Path) -> Path:
    """Where the selected encoder of a run lies."""
    return folder / "model"


@contextlib.contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder; the lock ends with the process.

    Raises:
        ValueError: another process is training in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise ValueError(
            f"another process is training in {folder}; wait for it, or choose another --output"
        ) from error


def claim_folder(inputs: Inputs, folder: Path) -> None:
    """Mark ``folder`` as this run's, or check that it is.

    Raises:
        ValueError: it holds another run, foreign files, or the encoder itself.
    """
    mine: dict[str, Any] = {"identity": inputs.identity.key, "recipe": inputs.recipe.flat()}
    place = folder / "run.json"
    if inputs.model.is_relative_to(folder.resolve()):
        raise ValueError(
            f"{folder} holds the encoder that is to be trained; choose another --output"
        )
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another --output")
    if not place.is_file():
        if folder.is_dir() and any(p.name != LOCK for p in folder.iterdir()):
            raise ValueError(
                f"{folder} holds files that are not a run's, and would be overwritten; choose "
                "another --output"
            )
        write_json(place, mine)
        return
    found = json.loads(place.read_text(encoding="utf-8"))
    if found["identity"] != mine["identity"]:
        theirs = found["recipe"]
        differing = [k for k, v in mine["recipe"].items() if theirs.get(k) != v]
        raise ValueError(
            f"{folder} holds another run ({found['identity']}, not {mine['identity']}); differing: "
            f"{differing or ['the content of the inputs']}. Choose another --output"
        )


def write_result(folder: Path, result: Result) -> None:
    """Record the outcome; from then on the run is finished."""
    write_json(folder / "result.json", asdict(result))


def forget_result(folder: Path) -> None:
    """Mark the run as not finished."""
    (folder / "result.json").unlink(missing_ok=True)


def read_result(folder: Path) -> Result | None:
    """The outcome of a finished run; None where it is not finished, or has lost its model."""
    place = folder / "result.json"
    if not place.is_file():
        return None
    content = json.loads(place.read_text(encoding="utf-8"))
    if content["best"] and not model_path(folder).is_dir():
        return None
    return Result(
        best=as_evaluation(content["best"]) if content["best"] else None,
        final=as_evaluation(content["final"]),
    )


def as_evaluation(content: dict[str, Any]) -> Evaluation:
    """An ``Evaluation`` from its ``asdict`` form."""
    return Evaluation(**content | {"scores": tuple(Score(**s) for s in content["scores"])})


def write_json(place: Path, content: object) -> None:
    """Write a file that no reader ever finds half written, whatever ends this process."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    fresh.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    fresh.replace(place)
