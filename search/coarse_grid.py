"""``python -m search.coarse_grid``: the paper's coarse grid (section 3.1), or its quick version."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.markup import escape
from rich.table import Table

from scd_core import cli
from scd_core.cli import console
from scd_core.device import default_device
from scd_core.inputs import Inputs, prepare
from scd_core.models import BUNDLED, PINNED
from scd_core.provenance import collect
from scd_core.recipe import Recipe, from_toml, preset, preset_names
from scd_core.tracking import Tracking
from scd_core.training import untrained_scores
from search import report
from search.interrupt import Interrupted
from search.ledger import read_finished, refuse_another
from search.plan import Plan, cpu_count, free_bytes, share_out
from search.runner import run_search
from search.space import COARSE, QUICK, Space

_KEYWORDS = {"documentation", "sample", "sts", "wiki1m"}  # of --corpus and --dev, not files
_RECIPES = {"paper": "scd-bert-paper"}  # every other preset has its recipe's name


@dataclass(frozen=True)
class Command:
    """Train SCD at every point of a grid over alpha, lambda, r_A < r_B and rank them by dev score.

    Run it again to resume: finished points are read from MLflow, the others run. Examples:

      python -m search.coarse_grid --preset quick
      python -m search.coarse_grid --preset quick --corpus mine.txt --dev pairs.tsv
      python -m search.coarse_grid --preset quick --space.alpha 0.1 0.2 --optim.max-steps 100
      python -m search.coarse_grid --preset paper --data-dir data --dry-run
    """

    preset: str | None = None
    """"paper" (the whole coarse grid for SCD-BERT), "quick" (part of it, in minutes on two CPU
    cores), or any recipe preset with the whole grid. Default: paper with a GPU, else quick."""
    recipe: Path | None = None
    """This recipe file (TOML) instead of the preset's recipe; flags override it."""
    name: str | None = None
    """Of the search. Default: made of the preset and a hash of recipe, grid and data."""
    concurrent: int | None = None
    """Trials at the same time. Default: as GPUs, or CPUs and memory, allow."""
    cpus_per_trial: float | None = None
    """CPUs, and threads, of a trial. Default: an equal share."""
    gpus_per_trial: float | None = None
    """GPUs of a trial; 0.5 lets two share one. Default: 1 where there is one."""
    dry_run: bool = False
    """Print the plan and stop."""
    space: Space = COARSE
    settings: Annotated[Recipe, tyro.conf.arg(name="")] = field(default_factory=Recipe)


def run(arguments: Sequence[str]) -> int:
    """Parse flags, search and report. Returns the exit code: 0 with a best point, else 1."""
    command = _parse(arguments)
    inputs = prepare(_absolute(command.settings))
    plan = _plan(command, inputs)
    refuse_another(plan)
    store = Tracking()
    _print_plan(plan, inputs, len(read_finished(plan, store)))
    if command.dry_run:
        return 0
    untrained = _untrained(plan, inputs, store)
    try:
        outcomes = run_search(plan, store, untrained, console)
    except Interrupted as stop:
        done = f"{len(read_finished(plan, store))} of {len(plan.trials)} points finished"
        report.say(console, f"stopped by {stop}: {done}. Go on with:\n  {plan.command}")
        return stop.exit_code
    best = report.write_best(plan, outcomes, untrained.get(plan.metric))
    if best is not None:
        report.write_model_card(plan, inputs, outcomes)
        report.attach(plan, store, best)
    report.print_report(plan, outcomes, untrained, best, store, console)
    return 1 if best is None else 0


def _parse(arguments: Sequence[str]) -> Command:
    """Flags over preset and recipe file, which are read first because they set the defaults.

    Raises:
        ValueError: an unknown preset, or a searched setting given outside the space.
    """
    name, file = cli.early_flags(arguments)
    known = ["paper", *preset_names()]
    if name is None:
        gpu = torch.cuda.is_available()
        name = "paper" if gpu else "quick"
        why = f"a GPU is visible ({torch.cuda.get_device_name()})" if gpu else "no GPU is visible"
        report.say(console, f"preset {name}, because {why}; --preset chooses another")
    elif name in known:
        report.say(console, f"preset {name}, as asked")
    else:
        raise ValueError(f"preset {name!r} does not exist; choose one of {known}")
    base = from_toml(file) if file else preset(_RECIPES.get(name, name))
    default = Command(name, space=QUICK if name == "quick" else COARSE, settings=base)
    command = tyro.cli(
        Command, args=arguments, default=default, prog="python -m search.coarse_grid"
    )
    given = command.settings
    if (given.views, given.objective.alpha, given.objective.lam) != (
        base.views,
        base.objective.alpha,
        base.objective.lam,
    ):
        raise ValueError(
            "alpha, lambda, r_A and r_B are searched: give their values with --space.alpha, "
            "--space.lam, --space.r-a and --space.r-b"
        )
    return command


def _absolute(recipe: Recipe) -> Recipe:
    """The recipe with its own files by their absolute place, for workers and for best.toml."""
    data = recipe.data
    places = {
        field: str(Path(value).expanduser().resolve())
        for field, value in (("corpus", data.corpus), ("dev", data.dev))
        if value not in _KEYWORDS and Path(value).expanduser().is_file()
    }
    folder = data.data_dir.expanduser().resolve() if data.data_dir else None
    data = dataclasses.replace(data, data_dir=folder, **places)
    model = recipe.model
    if model.name not in {BUNDLED, *PINNED} and Path(model.name).expanduser().is_dir():
        model = dataclasses.replace(model, name=str(Path(model.name).expanduser().resolve()))
    return dataclasses.replace(recipe, model=model, data=data)


def _plan(command: Command, inputs: Inputs) -> Plan:
    gpus = torch.cuda.device_count()
    tags = inputs.tags() | collect().tags()
    of_one_run = {"scd.identity", "scd.recipe_hash", "scd.preset"}
    return Plan(
        stage="coarse",
        recipe=inputs.recipe,
        space=command.space,
        data_fingerprint=inputs.identity.data_fingerprint,
        metric=inputs.selection_key,
        steps=inputs.total_steps,
        share=share_out(
            len(command.space.points),
            cpu_count(),
            gpus,
            free_bytes(),
            command.concurrent,
            command.cpus_per_trial,
            command.gpus_per_trial,
        ),
        chosen_name=command.name,
        preset=command.preset or "",
        data=tuple(inputs.data_inputs()),
        tags={name: value for name, value in tags.items() if name not in of_one_run},
        command=tags["scd.command"],
    )


def _untrained(plan: Plan, inputs: Inputs, store: Tracking) -> Mapping[str, float | None]:
    """Dev scores of the encoder as it comes; read back where this search has them already."""
    prefix = "untrained."
    for run in store.find("search", scd__identity=plan.identity):
        known = {k.removeprefix(prefix): v for k, v in run.metrics.items() if k.startswith(prefix)}
        if known:
            return known
    with console.status("scoring the untrained encoder"):
        return {score.key: score.value for score in untrained_scores(inputs)}


def _print_plan(plan: Plan, inputs: Inputs, finished: int) -> None:
    share, space = plan.share, plan.space
    each = f"{share.cpus:g} CPU" + (f" and {share.gpus:g} GPU" if share.gpus else "")
    rates = [" ".join(f"{100 * rate:g}%" for rate in rates) for rates in (space.r_a, space.r_b)]
    view = Table.grid(padding=(0, 2))
    for key, value in {
        "search": plan.name,
        "points": f"{len(plan.trials)}: alpha {_list(space.alpha)}; lambda {_list(space.lam)}; "
        f"r_A {rates[0]}; r_B {rates[1]}; r_A < r_B",
        "finished": f"{finished} already, {len(plan.trials) - finished} to run",
        "encoder": f"{plan.recipe.model.name}, {plan.recipe.model.pooling} pooling, "
        f"on {default_device()}",
        "sentences": f"{len(inputs.corpus.sentences):,} ({inputs.corpus.name})",
        "steps": f"{plan.steps:,} each, of batch {plan.recipe.optim.batch_size}",
        "ranked by": f"best {plan.metric}, every {plan.recipe.selection.every} steps",
        "at a time": f"{share.concurrent} trials of {each}",
        "folder": str(plan.folder),
    }.items():
        view.add_row(f"[bold]{key}[/]", escape(value))
    console.print(view, highlight=False)


def _list(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


if __name__ == "__main__":
    cli.main(run)
