"""``python -m scd_core.evaluate MODEL``: the paper's STS tasks for any encoder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.markup import escape
from rich.table import Table

from scd_core import cli
from scd_core.cli import console
from scd_core.device import default_device
from scd_core.encoder import Pooling, SentenceEncoder
from scd_core.evaluation.sts import (
    AGGREGATION,
    METRIC,
    Score,
    average,
    protocol_fingerprint,
    score_all,
)
from scd_core.evaluation.tasks import Pairs, load_dev, load_sample_test, load_test
from scd_core.export import saved_pooling
from scd_core.inputs import DataInput, model_label
from scd_core.models import model_fingerprint, model_folder
from scd_core.provenance import collect
from scd_core.run_folder import model_path
from scd_core.tracking import Tracking

_RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Command:
    """Score an encoder on sentence similarity: Spearman x 100 over all pairs of a task. Examples:

    python -m scd_core.evaluate bundled --data-dir data
    python -m scd_core.evaluate bert-base-uncased --pooling cls --track
    python -m scd_core.evaluate runs/156a4fbcc661-s0-1f0c9e2b/model --json scores.json
    """

    model: Annotated[str, tyro.conf.Positional]
    """"bundled", a model folder, a Hub name, or the id of an MLflow training run."""
    data_dir: Path | None = None
    """Folder that holds senteval/; default $SCD_DATA_DIR, then the Hub."""
    tasks: Literal["sts", "sts-dev", "sample"] = "sts"
    """The seven STS test tasks of Table 1, the two dev sets, or the project's own sample pairs
    (whose scores compare with nothing published)."""
    pooling: Pooling | None = None
    """Sentence vector; default: what the model folder states. Needed where it states none."""
    revision: str | None = None
    """Hub revision; the known base models are pinned."""
    batch_size: int = 64
    """Sentences a forward pass; does not change the scores."""
    max_length: int | None = None
    """Tokens a sentence is cut to; default: the model's limit. Nothing is cut in the paper."""
    track: bool = False
    """Write the scores to MLflow, where reproduce.tables finds them."""
    json: Path | None = None
    """Also write scores and protocol to this file."""


def run(arguments: Sequence[str]) -> int:
    """Parse flags, score, print. Returns the exit code."""
    command = tyro.cli(Command, args=arguments, prog="python -m scd_core.evaluate")
    _check(command)
    store = Tracking() if command.track else None
    pairs = _pairs(command)
    folder = _folder(command)
    pooling = command.pooling or saved_pooling(folder)
    if pooling is None:
        raise ValueError(
            f"{folder} does not state its pooling; say --pooling cls, mean or first_last "
            "(the paper's BERT [CLS] row is cls)"
        )
    encoder = SentenceEncoder(folder, pooling).to(default_device())
    length = min(command.max_length or encoder.limit, encoder.limit)
    with cli.progress_bar() as bar:
        task = bar.add_task("encoding", total=None)
        scores = score_all(
            pairs,
            lambda sentences: encoder.encode(
                sentences,
                command.batch_size,
                length,
                lambda done, total: bar.update(task, completed=done, total=total),
            ),
        )
    protocol = protocol_fingerprint(pairs)
    if length < encoder.limit:  # sentences may be cut: no table takes it for the full protocol
        protocol += f"-cut{length}"
    console.print(_table(escape(command.model), scores, pooling, length, protocol))
    report = {
        "model": model_label(command.model, command.revision),
        "model_fingerprint": model_fingerprint(folder),
        "pooling": pooling,
        "max_length": length,
        "protocol": protocol,
        "average": average(scores),
        "scores": [asdict(score) for score in scores],
    }
    if command.json:
        command.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if store is not None:
        console.print(f"MLflow: run {_track(store, report, pairs, scores)}")
    return 0


def _check(command: Command) -> None:
    if command.batch_size < 1:
        raise ValueError(f"--batch-size {command.batch_size} is not possible: give at least 1")
    if command.max_length is not None and command.max_length < 3:
        raise ValueError(
            f"--max-length {command.max_length} is not possible: a sentence with its two special "
            "tokens needs at least 3"
        )
    if command.json and not command.json.resolve().parent.is_dir():
        raise ValueError(f"--json {command.json}: its folder does not exist")


def _pairs(command: Command) -> list[Pairs]:
    if command.tasks == "sample":
        return load_sample_test()
    if command.tasks == "sts-dev":
        return load_dev("sts", command.data_dir)
    return load_test(command.data_dir)


def _folder(command: Command) -> Path:
    if not _RUN_ID.fullmatch(command.model):
        return model_folder(command.model, command.revision)
    tags = Tracking().get(command.model).tags
    if "scd.folder" not in tags:
        raise ValueError(f"MLflow run {command.model} is not a training run: it names no folder")
    return model_folder(str(model_path(Path(tags["scd.folder"]))))


def _table(model: str, scores: Sequence[Score], pooling: str, length: int, protocol: str) -> Table:
    table = Table(
        title=f"{model}: {METRIC} x 100, aggregation {AGGREGATION!r}, {pooling} pooling",
        caption=f"at most {length} tokens a sentence; protocol {protocol}",
    )
    for name in ("task", "split"):
        table.add_column(name)
    for name in ("score", "pairs", "zero vectors"):
        table.add_column(name, justify="right")
    for score in scores:
        table.add_row(
            score.task, score.split, score.text, str(score.pairs), str(score.zero_vectors or "")
        )
    mean = average(scores)
    table.add_section()
    table.add_row("average", "", "undefined" if mean is None else f"{mean:.2f}", "", "")
    return table


def _track(
    store: Tracking, report: dict[str, object], pairs: Sequence[Pairs], scores: Sequence[Score]
) -> str:
    model = str(report["model"])
    names = ("model", "model_fingerprint", "pooling", "protocol")
    tags = {f"scd.{name}": str(report[name]) for name in names}
    tags |= {
        "scd.method": "embedding",
        "scd.identity": f"{tags['scd.model_fingerprint'][:12]}-{report['pooling']}"
        f"-{report['max_length']}-{report['protocol']}",
        "scd.undefined": " ".join(s.key for s in scores if s.value is None),
    }
    params = {"model.name": model, "model.pooling": report["pooling"]}
    params["evaluation.max_length"] = report["max_length"]
    name = f"{model} {report['pooling']}"
    run_id = store.start("evaluation", name, tags | collect().tags(), params)
    store.inputs(run_id, [DataInput(p.name, p.split, p.name, p.fingerprint) for p in pairs])
    split = pairs[0].split
    store.log(run_id, {s.key: s.value for s in scores} | {f"{split}.average": average(scores)})
    store.finish(run_id)
    return run_id


if __name__ == "__main__":
    cli.main(run)
