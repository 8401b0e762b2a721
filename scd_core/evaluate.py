"""``python -m scd_core.evaluate MODEL``: the paper's 14 tasks and Figure 2's axes, any encoder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape

from scd_core import cli
from scd_core.cli import console
from scd_core.device import default_device
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.protocols import DEFAULT, PROTOCOLS, SEED, ProtocolName
from scd_core.evaluation.sts import AGGREGATION, METRIC
from scd_core.evaluation.suite import Measured, Result, Suite, load_suite, measure
from scd_core.evaluation.uncertainty import Difference, Interval, difference, interval
from scd_core.evaluation.vectors import Encode, kept
from scd_core.evaluation_run import write_evaluation
from scd_core.inputs import model_label
from scd_core.models import model_fingerprint, model_folder
from scd_core.places import cache
from scd_core.pooling import Pooling, saved_pooling
from scd_core.run_folder import model_path
from scd_core.run_info import RunInfo
from scd_core.score_table import difference_table, geometry_table, score_table
from scd_core.tracking import Tracking

_RUN_ID = re.compile(r"[0-9a-f]{32}")
_OF_TRAINING = ("method", "model", "preset", "recipe_hash", "seed", "data_fingerprint")
"""Tags that make an evaluation of a tracked training a row of that training."""


@dataclass(frozen=True)
class Command:
    """Score an encoder on similarity (Spearman x 100 over all pairs of a task), on transfer
    (accuracy of a linear classifier on its vectors) and on the geometry of its vectors. Examples:

      python -m scd_core.evaluate bundled --data-dir data --tasks sts
      python -m scd_core.evaluate bert-base-uncased --pooling cls --track
      python -m scd_core.evaluate runs/156a4fbcc661-s0-1f0c9e2b/model --against bundled
    """

    model: Annotated[str, tyro.conf.Positional]
    """"bundled", a model folder, a Hub name, or the id of an MLflow training run."""
    data_dir: Path | None = None
    """Folder that holds senteval/; default $SCD_DATA_DIR, then the Hub."""
    tasks: tuple[str, ...] = ("sts", "transfer")
    """Groups: sts (Table 1), transfer (Table 2), sts-dev, sample (the project's own pairs, whose
    scores compare with nothing published); or single tasks, e.g. stsb sickr-dev mr."""
    protocol: ProtocolName = DEFAULT
    """Classifier of the transfer tasks: the SentEval toolkit's default, as in the paper, or one at
    its optimum, with the same folds and strengths. The name is part of each score's."""
    seed: int = SEED
    """Of the transfer tasks' folds, first weights and batches; tables take the toolkit's, 1111."""
    pooling: Pooling | None = None
    """Sentence vector; default: what the model folder states. Needed where it states none."""
    revision: str | None = None
    """Hub revision; the known base models are pinned."""
    against: str | None = None
    """A second encoder: also show the differences on the same items, with intervals and p-values
    corrected over the tasks."""
    against_pooling: Pooling | None = None
    """Sentence vector of the second encoder; default as for the first."""
    intervals: bool = True
    """95% intervals by the bootstrap over test items."""
    allow_damaged: bool = False
    """Score evaluation files that are not as they should be; marked, and in no table."""
    batch_tokens: int | None = None
    """Tokens a forward pass; does not change the scores. Default: 1,024 on CPU, 65,536 on GPU."""
    max_length: int | None = None
    """Tokens a sentence is cut to; default: the model's limit. Nothing is cut in the paper."""
    keep_vectors: bool = False
    """Keep sentence vectors on disk, and take those that are there already."""
    track: bool = False
    """Write the scores to MLflow, where reproduce.tables finds them."""
    json: Path | None = None
    """Also write scores, intervals and protocols to this file."""


@dataclass(frozen=True, eq=False)
class Subject:
    """An encoder to be measured."""

    label: str
    folder: Path
    pooling: Pooling
    length: int
    """Tokens a sentence is cut to."""
    encoder: SentenceEncoder
    run: RunInfo | None
    """The training it comes from, where it was named by that."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.label}, {self.pooling} pooling"

    @property
    def cut(self) -> int | None:
        """The length, where it is under the model's limit, so that sentences may be cut."""
        return self.length if self.length < self.encoder.limit else None


def run(arguments: Sequence[str]) -> int:
    """Parse flags, score, print. Returns the exit code."""
    command = tyro.cli(Command, args=arguments, prog="python -m scd_core.evaluate")
    _check(command)
    store = Tracking() if command.track else None
    suite = load_suite(command.tasks, command.data_dir, command.allow_damaged)
    subject = _subject(command, command.model, command.pooling, command.revision)
    other = None
    if command.against is not None:
        other = _subject(command, command.against, command.against_pooling, None)
    for problem in suite.damage:
        console.print(f"[yellow]damaged:[/] {escape(problem)}", highlight=False, soft_wrap=True)
    measured = _measure(command, suite, subject)
    protocols = suite.protocols(command.protocol, command.seed, subject.cut)
    found = [_interval(one) for one in measured.results] if command.intervals else []
    console.print(score_table(escape(subject.name), _caption(command, protocols), measured, found))
    if measured.geometry:
        console.print(geometry_table(measured))
    report = _report(command, subject, protocols, measured, found)
    if other is not None:
        second = _measure(command, suite, other)
        differences = list(map(_difference, measured.results, second.results))
        names = escape(subject.name), escape(other.name)
        console.print(difference_table(names, (measured, second), differences))
        report["against"] = _report(command, other, protocols, second, [])
        report["differences"] = [asdict(d) if d else None for d in differences]
    text = json.dumps(report, indent=2) + "\n"
    if command.json:
        command.json.write_text(text, encoding="utf-8")
    if store is not None:
        console.print(f"MLflow: run {_track(store, subject, suite, measured, report)}")
    return 0


def _check(command: Command) -> None:
    if command.batch_tokens is not None and command.batch_tokens < 1:
        raise ValueError(f"--batch-tokens {command.batch_tokens} is not possible: give at least 1")
    if command.max_length is not None and command.max_length < 3:
        raise ValueError(
            f"--max-length {command.max_length} is not possible: a sentence with its two special "
            "tokens needs at least 3"
        )
    if command.json and not command.json.resolve().parent.is_dir():
        raise ValueError(f"--json {command.json}: its folder does not exist")
    if command.against_pooling and not command.against:
        raise ValueError(f"--against-pooling {command.against_pooling} without --against")
    if command.seed < 0:
        raise ValueError(f"--seed {command.seed} is not possible: give 0 or more")


def _subject(
    command: Command, model: str, pooling: Pooling | None, revision: str | None
) -> Subject:
    training = Tracking().get(model) if _RUN_ID.fullmatch(model) else None
    if training is None:
        folder = model_folder(model, revision)
    elif "scd.folder" in training.tags:
        folder = model_folder(str(model_path(Path(training.tags["scd.folder"]))))
    else:
        raise ValueError(f"MLflow run {model} is not a training run: it names no folder")
    pooling = pooling or saved_pooling(folder)
    if pooling is None:
        flag = "--pooling" if model == command.model else "--against-pooling"
        raise ValueError(
            f"{folder} does not state its pooling; say {flag} cls, mean or first_last "
            "(the paper's BERT [CLS] row is cls)"
        )
    encoder = SentenceEncoder(folder, pooling).to(default_device())
    length = min(command.max_length or encoder.limit, encoder.limit)
    return Subject(model_label(model, revision), folder, pooling, length, encoder, training)


def _measure(command: Command, suite: Suite, subject: Subject) -> Measured:
    with cli.progress_bar() as bar:
        task = bar.add_task(f"encoding, {subject.pooling}", visible=False)

        def encode(sentences: Sequence[str]) -> Any:
            return subject.encoder.encode(
                sentences,
                command.batch_tokens,
                subject.length,
                lambda done, total: bar.update(task, completed=done, total=total, visible=True),
            )

        source: Encode = encode
        if command.keep_vectors:
            key = f"{model_fingerprint(subject.folder)[:16]}-{subject.pooling}-{subject.length}"
            source = kept(cache() / "vectors" / key, encode)
        classifiers = bar.add_task("classifiers", total=len(suite.transfer), visible=False)
        seen: list[str] = []

        def starting(name: str) -> None:
            bar.update(
                classifiers, description=f"classifiers, {name}", completed=len(seen), visible=True
            )
            seen.append(name)

        measured = measure(suite, source, command.protocol, command.seed, starting)
        bar.update(classifiers, completed=len(seen))
    return measured


def _caption(command: Command, protocols: dict[str, str]) -> str:
    how = {
        "sts": f"{METRIC} x 100, aggregation {AGGREGATION!r}",
        "transfer": f"accuracy x 100, classifier {command.protocol!r}, seed {command.seed}",
    }
    return "\n".join(f"{how[name]}; protocol {value}" for name, value in protocols.items())


def _interval(one: Result) -> Interval | None:
    return interval(one.items) if one.items is not None else None


def _difference(one: Result, other: Result) -> Difference | None:
    if one.items is None or other.items is None:
        return None
    return difference(one.items, other.items)


def _report(
    command: Command,
    subject: Subject,
    protocols: dict[str, str],
    measured: Measured,
    intervals: Sequence[Interval | None],
) -> dict[str, Any]:
    scores = [one.score for one in measured.results]
    report: dict[str, Any] = {
        "model": subject.label,
        "model_fingerprint": model_fingerprint(subject.folder),
        "pooling": subject.pooling,
        "max_length": subject.length,
        "protocols": protocols,
        "averages": measured.averages,
        "geometry": {split: asdict(shape) for split, shape in measured.geometry.items()},
        "scores": [{"key": score.key} | score.record() for score in scores],
    }
    if "transfer" in protocols:
        report["classifier"] = PROTOCOLS[command.protocol].settings(command.seed)
    for score, found in zip(report["scores"], intervals, strict=False):
        score["interval"] = [found.low, found.high] if found else None
    return report


def _track(
    store: Tracking, subject: Subject, suite: Suite, measured: Measured, report: dict[str, Any]
) -> str:
    tags = {f"scd.{name}": str(report[name]) for name in ("model", "model_fingerprint", "pooling")}
    tags["scd.method"] = "embedding"
    params: dict[str, Any] = {"model.name": subject.label, "model.pooling": subject.pooling}
    if subject.run is not None:
        of_training = (f"scd.{name}" for name in _OF_TRAINING)
        tags |= {name: subject.run.tags[name] for name in of_training if name in subject.run.tags}
        tags["scd.trained_by"] = subject.run.run_id
        params = {**subject.run.params, "model.pooling": subject.pooling}
    params["evaluation.max_length"] = subject.length
    if classifier := report.get("classifier"):
        params |= {f"evaluation.{name}": value for name, value in classifier.items()}
    parts = (tags["scd.model_fingerprint"][:12], subject.pooling, str(subject.length))
    tags["scd.identity"] = "-".join((*parts, *report["protocols"].values()))
    return write_evaluation(
        store,
        subject.name,
        suite,
        measured,
        report["protocols"],
        tags,
        params,
        texts={"scores.json": json.dumps(report, indent=2)},
    )


if __name__ == "__main__":
    cli.main(run)
