"""``python -m scd_core.train``: one training run; no flags is the paper's SCD-BERT."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.markup import escape
from rich.table import Table

from scd_core import cli, forecast, places
from scd_core.cli import console
from scd_core.device import default_device
from scd_core.divergence import DivergedError
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.protocols import DEFAULT, SEED
from scd_core.evaluation.sts import Score, average
from scd_core.evaluation.suite import Suite, load_suite, measure
from scd_core.evaluation.tasks import STS_DEV, STS_TEST, require_tasks
from scd_core.evaluation_run import log_measured, protocol_tags
from scd_core.export import write_card
from scd_core.inputs import DataInput, Inputs, prepare
from scd_core.mlflow_client import TrackingError
from scd_core.provenance import collect
from scd_core.recipe import Recipe, from_toml, preset
from scd_core.run_folder import (
    Evaluation,
    Result,
    claim_folder,
    model_path,
    read_result,
    sole_user,
)
from scd_core.run_info import RunInfo, Status
from scd_core.settings import METHODS
from scd_core.tracking import Tracking
from scd_core.training import StepRecord, train, untrained_scores

_LOG_EVERY = 10  # steps between loss values in MLflow
_SAY_EVERY = 30.0  # seconds between lines where there is no terminal for a progress bar


@dataclass(frozen=True)
class Command:
    """Train SCD once and keep the best checkpoint by its dev score.

    Without flags this is the paper's SCD-BERT on 10^6 Wikipedia sentences. Examples:

      python -m scd_core.train --preset scd-bert-released --seed 1 --data-dir data
      python -m scd_core.train --model.name bundled --corpus mine.txt --dev pairs.tsv --dry-run

    Run it again to resume: the same recipe, seed and data are the same run.
    """

    preset: str = "scd-bert-paper"
    """Start from this preset; flags override it."""
    recipe: Path | None = None
    """Start from this recipe file (TOML), e.g. a search's best.toml, instead of a preset; flags
    override it."""
    output: Path | None = None
    """Folder of the run. Default: below runs/, named by the run's identity."""
    test: bool = True
    """Score the selected model on the test tasks at the end (STS with --dev sts)."""
    dry_run: bool = False
    """Print the plan and a forecast from a few real steps, then stop."""
    settings: Annotated[Recipe, tyro.conf.arg(name="")] = field(default_factory=Recipe)


def run(arguments: Sequence[str]) -> int:
    """Parse flags and train. Returns the exit code."""
    name, file = cli.early_flags(arguments)
    if name and file:
        raise ValueError("--preset and --recipe each give a whole recipe; leave one of them out")
    base = Command(settings=from_toml(file) if file else preset(name or Command.preset))
    command = tyro.cli(Command, args=arguments, default=base, prog="python -m scd_core.train")
    tests = _tests(command.settings) if command.test else None
    inputs = prepare(command.settings)
    folder = (command.output or places.runs() / inputs.identity.key).resolve()
    _print_plan(inputs, folder, tests)
    if command.dry_run:
        _print_forecast(inputs)
        return 0
    claim_folder(inputs, folder)
    with sole_user(folder):
        store = Tracking()
        before = [
            run
            for run in store.find("train", **{"scd.folder": str(folder)})
            if run.status == "FINISHED" and read_result(folder) is not None
        ]
        for run in before:
            if tests is None or _protocol_of(tests).items() <= run.tags.items():
                _print_finished(inputs, folder, run)
                return 0
        return _train(inputs, folder, tests, store, before[0].run_id if before else None)


def _train(
    inputs: Inputs, folder: Path, tests: Suite | None, store: Tracking, run_id: str | None
) -> int:
    """Train and test; ``run_id`` is of a run that lacks its test scores only."""
    provenance = collect()
    if run_id is not None:
        store.reopen(run_id)
    else:
        tags = inputs.tags() | provenance.tags() | {"scd.folder": str(folder)}
        name = f"{tags.get('scd.preset', inputs.recipe.model.name)} seed {inputs.recipe.seed}"
        run_id = store.start("train", name, tags, inputs.recipe.symbols())
    pairs = tests.pairs if tests else ()
    store.inputs(
        run_id,
        [
            *inputs.data_inputs(),
            *(DataInput(p.name, "test", inputs.recipe.data.dev, p.fingerprint) for p in pairs),
        ],
    )
    store.text(run_id, inputs.recipe.to_toml(), "recipe.toml")
    status: Status = "FAILED"
    reason = "stopped by an error"
    try:
        if not _steps(inputs, folder, store, run_id):
            status, reason = "KILLED", "interrupted"
            console.print("Stopped; everything so far is kept. The same command goes on from here.")
            return 130
        result = read_result(folder)
        if result is None or result.best is None:
            reason = "no dev evaluation gave a defined score"
            raise ValueError(f"{reason}: the vectors have collapsed, so there is no best model")
        last = {"scd.best_step": str(result.best.step), "scd.reason": ""}
        scores, found = list[Score](), result.best.metrics()
        if tests:
            measured = measure(tests, _selected(inputs, folder).encode)
            log_measured(store, run_id, measured, result.best.step)
            last |= _protocol_of(tests)
            scores = [one.score for one in measured.results if isinstance(one.score, Score)]
            found |= measured.metrics()
        best = {f"best.{name}": value for name, value in result.best.metrics().items()}
        store.log(run_id, best, result.best.step)
        undefined = [name for name, value in found.items() if value is None]
        write_card(
            model_path(folder), inputs, result.best.scores, result.best.step, scores, provenance
        )
        store.tag(run_id, last | {"scd.undefined": " ".join(undefined)})
        status = "FINISHED"
        _print_result(inputs, folder, result, scores)
        console.print(f"MLflow: run {run_id} in {store.address}", soft_wrap=True, markup=False)
        return 0
    except DivergedError as error:
        reason = str(error)
        raise ValueError(reason) from error
    except TrackingError as error:
        kept = f"What was trained is kept in {folder}; the same command goes on from there"
        raise ValueError(f"{error}. {kept}") from error
    except KeyboardInterrupt:
        status, reason = "KILLED", "interrupted"
        raise
    finally:
        with contextlib.suppress(TrackingError):  # told already, or the run says RUNNING
            store.finish(run_id, status, {} if status == "FINISHED" else {"scd.reason": reason})


def _steps(inputs: Inputs, folder: Path, store: Tracking, run_id: str) -> bool:
    """Train to the end, writing to MLflow. Returns False where an interruption stopped it."""
    before = untrained_scores(inputs)
    store.log(run_id, {f"untrained.{s.key}": s.value for s in before})
    console.print(f"untrained: {_line(before)}")
    with (
        contextlib.closing(train(inputs, folder)) as records,  # saves, whatever ends the loop
        cli.interruptible() as interrupted,
        cli.progress_bar() as bar,
    ):
        task = bar.add_task("training", total=inputs.total_steps)
        said = time.monotonic()
        for record in records:
            if isinstance(record, Evaluation):
                store.log(run_id, record.metrics(), record.step)
                mark = " (best)" if record.best else ""
                bar.console.print(f"step {record.step}: {_line(record.scores)}{mark}")
                continue
            bar.update(task, completed=record.step)
            if record.step % _LOG_EVERY == 0 or record.step == record.total:
                store.log(run_id, _losses(record), record.step)
                bar.update(task, description=f"training, loss {record.terms.loss.item():.4f}")
            if not bar.console.is_terminal and time.monotonic() - said > _SAY_EVERY:
                bar.console.print(f"step {record.step} of {record.total}")
                said = time.monotonic()
            if interrupted() and record.step < record.total:
                return False
    return True


def _losses(record: StepRecord) -> dict[str, float | None]:
    terms = {f"train.{name}": value.item() for name, value in record.terms._asdict().items()}
    return {**terms, "train.learning_rate": record.learning_rate}


def _tests(recipe: Recipe) -> Suite | None:
    """Test pairs of the same origin as the dev pairs; own dev pairs have none."""
    if recipe.data.dev == "sts":
        require_tasks(recipe.data.data_dir, STS_DEV + STS_TEST)
        return load_suite(("sts",), recipe.data.data_dir)
    return load_suite(("sample",), None) if recipe.data.dev == "sample" else None


def _protocol_of(tests: Suite) -> dict[str, str]:
    return protocol_tags(tests.protocols(DEFAULT, SEED, None))


def _selected(inputs: Inputs, folder: Path) -> SentenceEncoder:
    """The encoder at its best checkpoint."""
    encoder = SentenceEncoder(model_path(folder), inputs.recipe.model.pooling)
    return encoder.to(default_device())


def _print_plan(inputs: Inputs, folder: Path, tests: Suite | None) -> None:
    recipe = inputs.recipe
    name = inputs.tags().get("scd.preset", "custom recipe")
    table = Table.grid(padding=(0, 2))
    for key, value in {
        "recipe": f"{name} ({inputs.identity.key})",
        "encoder": f"{recipe.model.name}, {recipe.model.pooling} pooling, on {default_device()}",
        "method": METHODS[recipe.method],
        "settings": _settings(recipe),
        "sentences": f"{len(inputs.corpus.sentences):,} ({inputs.corpus.name})",
        "steps": f"{inputs.total_steps:,} of batch {recipe.optim.batch_size}",
        "dev": f"{', '.join(p.name for p in inputs.dev)} every {recipe.selection.every} steps, "
        f"best by {inputs.selection_key}",
        "test": ", ".join(p.name for p in tests.pairs) if tests else "none",
        "folder": str(folder),
    }.items():
        table.add_row(f"[bold]{key}[/]", escape(value))
    console.print(table)
    if recipe.optim.precision == "fp16" and default_device().type == "cpu":
        slow = "optim.precision fp16 takes about 40 times as long as bf16 on a CPU; auto is fast"
        console.print(f"[yellow]slow:[/] {slow}", highlight=False, soft_wrap=True)


def _settings(recipe: Recipe) -> str:
    views, objective = recipe.views, recipe.objective
    if recipe.method != "scd":
        return f"dropout {views.r_a}, lr {recipe.optim.lr}, tau {objective.temperature}"
    return (
        f"alpha {objective.alpha}, lambda {objective.lam}, r_A {views.r_a}, r_B {views.r_b}, "
        f"tau {objective.temperature}"
    )


def _print_forecast(inputs: Inputs) -> None:
    cost = forecast.measure(inputs)
    hours = cost.seconds(inputs.total_steps, inputs.recipe.selection.every) / 3600
    console.print(f"untrained: {_line(cost.untrained)}")
    console.print(
        f"forecast: {cost.step:.2f} s a step, {cost.evaluation:.1f} s a dev evaluation, "
        f"about {hours:.2f} h in all ({default_device()}, {torch.get_num_threads()} threads); "
        f"disk at most {cost.disk / 1e9:.1f} GB"
    )


def _print_result(inputs: Inputs, folder: Path, result: Result, scores: Sequence[Score]) -> None:
    if result.best is None:
        return
    console.print(
        f"best by {inputs.selection_key}, step {result.best.step}: {_line(result.best.scores)}"
    )
    console.print(f"at the last step, {result.final.step}: {_line(result.final.scores)}")
    if scores:
        mean = average(scores)
        console.print(
            f"test, of that best model: {_line(scores)}  "
            f"average {'undefined' if mean is None else f'{mean:.2f}'}"
        )
    console.print(f"model: {model_path(folder)}", soft_wrap=True, markup=False)


def _print_finished(inputs: Inputs, folder: Path, run: RunInfo) -> None:
    console.print("This run is finished; nothing was trained again.")
    result = read_result(folder)
    if result is not None:
        _print_result(inputs, folder, result, ())
    test = [f"{k} {v:.2f}" for k, v in sorted(run.metrics.items()) if k.startswith("test.")]
    if test:
        console.print(f"test, of that best model: {'  '.join(test)}")
    console.print(f"MLflow: run {run.run_id}")


def _line(scores: Sequence[Score]) -> str:
    return "  ".join(f"{s.task} {s.text}" for s in scores)


if __name__ == "__main__":
    cli.main(run)
