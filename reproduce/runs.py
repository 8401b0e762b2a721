"""``python -m reproduce.runs``: measure the rows that a table needs and MLflow has not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.markup import escape
from rich.table import Table

from reproduce.jobs import Context, Job, jobs_of
from reproduce.layouts import LAYOUTS, Name
from reproduce.published import published_table
from scd_core import cli, forecast
from scd_core.cli import console
from scd_core.evaluation.suite import load_suite
from scd_core.models import model_folder
from scd_core.tracking import Tracking


@dataclass(frozen=True)
class Command:
    """Measure what Tables 1 to 3 need and MLflow has not; the same command goes on. Examples:

    python -m reproduce.runs --table 1 --backbone bert-base-uncased --dry-run
    python -m reproduce.runs --table 1 3 --backbone bundled --data-dir data --corpus wiki.txt
    """

    table: tuple[Literal[1, 2, 3], ...] = (1, 2, 3)
    """Tables of the paper."""
    backbone: str = "bert-base-uncased"
    """Encoder of the rows: a Hub name, a folder, or "bundled", whose trainings are as short as the
    preset scd-bundled. Rows are those that the paper has of BERT, and those of RoBERTa where the
    model is of that family."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of trained rows, and of BERT-flow."""
    methods: tuple[str, ...] = ()
    """Only these, e.g. scd simcse whitening. Default: all of the table."""
    corpus: str | None = None
    """Training sentences in place of the presets' own."""
    glove: Path | None = None
    """File of GloVe vectors; without it that row is left out."""
    data_dir: Path | None = None
    """Folder that holds senteval/; default $SCD_DATA_DIR, then the Hub."""
    dry_run: bool = False
    """Print what is there, what is missing and how long the missing trainings take, then stop."""


def run(arguments: Sequence[str]) -> int:
    """Parse flags, print the plan, run what is missing in its order. Returns the exit code."""
    command = tyro.cli(Command, args=arguments, prog="python -m reproduce.runs")
    if not command.seeds or min(command.seeds) < 0:
        raise ValueError(f"--seeds {command.seeds} is not possible: give whole numbers from 0")
    store = Tracking()
    jobs, left_out = _plan(command, store)
    done = [job.done() for job in jobs]
    _print_plan(jobs, done, left_out)
    missing = [job for job, run_id in zip(jobs, done, strict=True) if run_id is None]
    if command.dry_run:
        _print_forecast(missing)
        return 0
    for number, job in enumerate(missing, start=1):
        console.print(f"[bold]{number} of {len(missing)}:[/] {escape(job.title)}")
        code = job.run()
        if code:
            return code
    console.print(f"{len(jobs)} runs are there. python -m reproduce.tables shows them.")
    return 0


def _plan(command: Command, store: Tracking) -> tuple[list[Job], list[str]]:
    """The jobs of all tables, each once, and the titles of rows that no job measures."""
    section = _family(model_folder(command.backbone))
    jobs: dict[str, Job] = {}
    left_out: list[str] = []
    for number in dict.fromkeys(command.table):
        name: Name = LAYOUTS[f"table{number}"].name  # type: ignore[index]
        suite = load_suite(("transfer",) if number == 2 else ("sts",), command.data_dir)
        context = Context(
            store,
            suite,
            command.backbone,
            command.seeds,
            command.corpus,
            command.glove,
            command.data_dir,
        )
        for row in published_table(name).rows:
            if row.section != section or (command.methods and row.method not in command.methods):
                continue
            found = jobs_of(row, context)
            left_out += [] if found else [f"{name}: {row.title}"]
            jobs |= {job.title: job for job in found}
    return list(jobs.values()), left_out


def _family(folder: Path) -> str:
    """The part of the tables that an encoder belongs to, by its configuration."""
    kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    return "roberta" if kind == "roberta" else "bert"


def _print_plan(jobs: Sequence[Job], done: Sequence[str | None], left_out: Sequence[str]) -> None:
    table = Table.grid(padding=(0, 2))
    for job, run_id in zip(jobs, done, strict=True):
        table.add_row(escape(job.title), f"run {run_id}" if run_id else "[yellow]missing[/]")
    console.print(table)
    for title in left_out:
        console.print(f"not measured here: {title}", markup=False)
    lacking = sum(run_id is None for run_id in done)
    console.print(f"{len(jobs)} runs: {len(jobs) - lacking} are there, {lacking} to run")


def _print_forecast(missing: Sequence[Job]) -> None:
    """Time a few real steps of each method that is to be trained."""
    trainings = [job.inputs for job in missing if job.inputs is not None]
    hours = 0.0
    for recipe in {dataclasses.replace(i.recipe, seed=0): i.recipe for i in trainings}:
        same = [i for i in trainings if dataclasses.replace(i.recipe, seed=0) == recipe]
        cost = forecast.measure(same[0])
        each = cost.seconds(same[0].total_steps, recipe.selection.every) / 3600
        hours += each * len(same)
        console.print(
            f"{recipe.method}: {cost.step:.2f} s a step, {same[0].total_steps:,} steps, "
            f"about {each:.2f} h a seed",
            highlight=False,
        )
    console.print(f"forecast: about {hours:.2f} h of training, without the evaluations")


if __name__ == "__main__":
    cli.main(run)
