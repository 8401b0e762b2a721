"""``python -m reproduce.runs``: measure the rows that a table needs and MLflow has not."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.markup import escape
from rich.table import Table

from reproduce.jobs import Job, Training
from reproduce.needs import Name, Needs
from reproduce.pool import alone, run_all
from reproduce.rows import UNTRAINED
from scd_core import cli, forecast, inputs
from scd_core.cli import console
from scd_core.device import default_device
from scd_core.models import model_folder
from scd_core.recipe import Recipe
from scd_core.settings import METHODS
from scd_core.tracking import Tracking
from search import cluster
from search.display import duration
from search.interrupt import Interrupted
from search.machine import TRIAL_BYTES, Share

_SAY_EVERY = 60.0  # seconds between lines where there is no terminal
_TIMES_WEIGHTS = 20
"""Memory of a training on a CPU beyond ``TRIAL_BYTES``: BERT-base at batch 192 took 7 to 10 GB,
440 MB of it weights."""
Found = Mapping[str, Mapping[str, str | None]]
"""Run ids by a job's key and a group of test tasks; None where no run has these scores."""


@dataclass(frozen=True)
class Command:
    """Measure what the tables need and MLflow has not, side by side on Ray; the same command goes
    on. Examples:

    python -m reproduce.runs --table 1 --backbone bert-base-uncased --dry-run
    python -m reproduce.runs --table 1 2 3 fidelity --backbone bundled --data-dir data
    """

    table: tuple[Name, ...] = ("1", "2", "3")
    """Tables of the paper; "fidelity" (SCD with each difference to the released code), "figure2"
    (Table 1 and further encoders)."""
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
    nli: str | None = None
    """CSV file of triplets in place of the published ones, "nli": flow and whitening are fitted on
    their sentences, supervised SimCSE (figure2) is trained on them. With --corpus and without this,
    those are left out."""
    data_dir: Path | None = None
    """Folder that holds senteval/; default $SCD_DATA_DIR, then the Hub."""
    concurrent: int | None = None
    """Runs at the same time. Default: as GPUs, or CPUs and memory, allow."""
    cpus_per_trial: float | None = None
    """CPUs, and threads, of a run. Default: an equal share."""
    gpus_per_trial: float | None = None
    """GPUs of a run; 0.5 lets two share one. Default: 1 where there is one."""
    address: str | None = None
    """Of a running Ray cluster ("auto" or HOST:PORT) that runs them instead of this machine."""
    dry_run: bool = False
    """Print what is there, what is missing and how long the missing trainings take, then stop."""


def run(arguments: Sequence[str]) -> int:
    """Parse flags, print plan and forecast, run what is missing.

    Returns:
        The exit code: 0 where all runs are there, or were only planned, 1 where some failed, else
        the signal's.
    """
    command = tyro.cli(Command, args=arguments, prog="python -m reproduce.runs")
    if not command.seeds or min(command.seeds) < 0:
        raise ValueError(f"--seeds {command.seeds} is not possible: give whole numbers from 0")
    known = (*METHODS, *UNTRAINED)
    if unknown := [method for method in command.methods if method not in known]:
        raise ValueError(f"--methods {unknown} is not possible: choose from {', '.join(known)}")
    store = Tracking()
    if command.address and not store.address.startswith("http"):
        raise ValueError(
            f"--address {command.address}: the workers write to MLflow, and {store.address} is not "
            "to be written from other machines; set MLFLOW_TRACKING_URI to a server"
        )
    jobs, left_out = _needs(command).jobs(command.table, command.methods)
    if not jobs and not left_out:
        methods = " of --methods " + " ".join(command.methods) if command.methods else ""
        raise ValueError(
            f"--table {' '.join(command.table)} has no row{methods} for --backbone "
            f"{command.backbone}; choose other tables or methods"
        )
    found = {j.key: {g: j.finished(g, store) for g in j.tests.groups} for j in jobs}
    _print_plan(jobs, found, left_out)
    missing = [job for job in jobs if None in found[job.key].values()]
    if not missing:
        return 0
    share = _share(command, len(missing))
    if command.dry_run:
        _print_forecast(missing, store, share, command.address)
        return 0
    with alone():
        _print_forecast(missing, store, share, command.address)
        return _run(missing, share, command)


def _needs(command: Command) -> Needs:
    def absolute(path: Path | None) -> Path | None:
        return path.expanduser().resolve() if path else None

    nli = command.nli or ("" if command.corpus else "nli")
    cluster_has = cluster.resources(command.address)
    return Needs(
        inputs.model_label(command.backbone),
        command.seeds,
        command.corpus,
        absolute(command.glove),
        inputs.source_label(nli) or None,
        absolute(command.data_dir),
        cluster_has[1] > 0 if cluster_has else default_device().type == "cuda",
    )


def _share(command: Command, jobs: int) -> Share:
    weights = model_folder(command.backbone).glob("model*.safetensors")
    return cluster.share_of(
        command.address,
        jobs,
        command.concurrent,
        command.cpus_per_trial,
        command.gpus_per_trial,
        TRIAL_BYTES + _TIMES_WEIGHTS * sum(path.stat().st_size for path in weights),
    )


def _run(missing: Sequence[Job], share: Share, command: Command) -> int:
    failed: list[str] = []
    done, said, began = 0, time.monotonic(), time.monotonic()
    with cli.progress_bar() as bar:
        task = bar.add_task("runs", total=len(missing))

        def line(text: str) -> None:
            nonlocal said
            said = time.monotonic()
            head = f"[{done} of {len(missing)}, {duration(said - began)}]"
            bar.console.print(f"{head} {text}", highlight=False, markup=False, soft_wrap=True)

        def ended(job: Job, why: str) -> None:
            nonlocal done
            done += 1
            bar.advance(task)
            line(f"{job.title}: " + (f"failed: {why}" if why else "finished"))
            failed.extend([job.title] if why else [])

        def tick(running: int) -> None:
            if not bar.console.is_terminal and time.monotonic() - said > _SAY_EVERY:
                line(f"{running} running")

        try:
            run_all(missing, share, command.address, ended, tick)
        except Interrupted as stop:
            line(f"stopped by {stop}; what was saved is kept, the same command goes on")
            return stop.exit_code
    if failed:
        console.print(f"{len(failed)} of {len(missing)} failed; the same command tries them again.")
        return 1
    console.print("All runs are there. python -m reproduce.tables shows them.")
    return 0


def _print_plan(jobs: Sequence[Job], found: Found, left_out: Sequence[str]) -> None:
    table = Table.grid(padding=(0, 2))
    for job in jobs:
        cells = (
            f"{group} run {run_id}" if run_id else f"[yellow]{group} missing[/]"
            for group, run_id in found[job.key].items()
        )
        table.add_row(escape(job.title), *cells)
    console.print(table)
    for title in left_out:
        console.print(f"not measured here: {title}", markup=False)
    lacking = sum(None in of_job.values() for of_job in found.values())
    console.print(f"{len(jobs)} encoders: {len(jobs) - lacking} are measured, {lacking} to do")


def _print_forecast(
    missing: Sequence[Job], store: Tracking, share: Share, address: str | None
) -> None:
    """Time a few real steps of each kind of training that is to be run, and its dev evaluation:
    what a sentence takes there, it takes in the test sets."""
    kinds: dict[Hashable, list[Training]] = {}
    for job in missing:
        if isinstance(job, Training) and job.untrained(store):
            kinds.setdefault(_kind(job.recipe), []).append(job)
    hours, threads, read = 0.0, max(1, int(share.cpus)), None
    for trainings in kinds.values():
        read = inputs.prepare(trainings[0].recipe, read)
        with console.status(f"timing a few steps of {read.recipe.method}"):
            cost = cluster.call(address, share, forecast.measure, read, threads)
        seconds = cost.seconds(read.total_steps, read.recipe.selection.every)
        dev = {text for pairs in read.dev for text in pairs.texts}
        sentences = sum(job.tests.sentences for job in trainings) / len(trainings)
        each = (seconds + sentences * cost.evaluation / len(dev)) / 3600
        hours += each * len(trainings)
        console.print(
            f"{read.recipe.method}, {read.recipe.optim.precision}: {cost.step:.2f} s a step, "
            f"{read.total_steps:,} steps, about {each:.2f} h each, {len(trainings)} of them",
            highlight=False,
        )
    if kinds:
        console.print(
            f"forecast: about {hours / share.concurrent:.2f} h of trainings and their test sets, "
            f"{share.concurrent} at a time; what is only fitted or evaluated, and the classifiers "
            "of transfer tasks, come to it"
        )


def _kind(recipe: Recipe) -> Hashable:
    """What the cost of a step depends on."""
    parts = recipe.model, recipe.optim, recipe.projector, recipe.data, recipe.selection.every
    return recipe.method, recipe.objective.normaliser, *parts


if __name__ == "__main__":
    cli.main(run)
