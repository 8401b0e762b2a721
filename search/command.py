"""What the commands of all stages share: their flags, the plan, the search and its report."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.markup import escape
from rich.table import Table

from scd_core import cli
from scd_core.cli import console
from scd_core.inputs import Inputs, prepare
from scd_core.models import BUNDLED, PINNED
from scd_core.provenance import collect
from scd_core.recipe import Recipe, from_toml, preset, preset_names
from scd_core.tracking import Tracking
from scd_core.training import default_device, untrained_scores
from search import cluster, report
from search.interrupt import Interrupted
from search.ledger import read_outcomes, refuse_another
from search.machine import cpu_count, free_bytes, share_out
from search.plan import Budget, Plan, Sampler, base_of
from search.pruning import Pruning
from search.runner import run_search
from search.space import Space
from search.stages import Around, winner_of

_KEYWORDS = {"documentation", "sample", "sts", "wiki1m"}  # of --corpus and --dev, not files
_RECIPES = {"paper": "scd-bert-paper"}  # every other preset has its recipe's name
_TRIALS, _QUICK_TRIALS = 60, 8  # of a search that does not run its whole grid


@dataclass(frozen=True)
class Options:
    """The flags of every stage beside its grid and the recipe."""

    preset: str | None = None
    """"paper" (SCD-BERT), "quick" (minutes on two CPU cores), or any recipe preset. Default: paper
    with a GPU, else quick."""
    recipe: Path | None = None
    """This recipe file (TOML) instead of the preset's recipe; flags override it."""
    name: str | None = None
    """Of the search, the same for all its stages. Default: made of the preset and a hash of recipe,
    grid and data."""
    sampler: Sampler = "grid"
    """"grid" runs every point; "random" and "tpe" (tree-structured Parzen estimator) draw points of
    the same grid, each once, as many as --max-trials."""
    max_trials: int | None = None
    """Trials with a result, in all commands together. Default for random and tpe: 60, quick 8."""
    max_hours: float | None = None
    """Begin no trial after so many hours of this command; the same command goes on."""
    seeds: tuple[int, ...] | None = None
    """Run every point once with each; the ranking is by their mean. Default: --seed."""
    retries: int = 1
    """Times that this command tries a failed trial again."""
    pruning: Pruning = field(default_factory=Pruning)
    concurrent: int | None = None
    """Trials at the same time. Default: as GPUs, or CPUs and memory, allow."""
    cpus_per_trial: float | None = None
    """CPUs, and threads, of a trial. Default: an equal share."""
    gpus_per_trial: float | None = None
    """GPUs of a trial; 0.5 lets two share one. Default: 1 where there is one."""
    address: str | None = None
    """Of a running Ray cluster ("auto" or HOST:PORT) that trains instead of this machine."""
    dry_run: bool = False
    """Print the plan and stop."""


Flags = Annotated[Options, tyro.conf.arg(name="")]
Settings = Annotated[Recipe, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class Stage:
    """A grid, ready to be searched."""

    name: str
    space: Space
    tags: Mapping[str, str] = field(default_factory=dict)
    """Said of the search in MLflow."""


def start(arguments: Sequence[str]) -> tuple[str, Recipe]:
    """The preset's name and the recipe that the other flags change, read before them.

    Raises:
        ValueError: an unknown preset.
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
    return name, from_toml(file) if file else preset(_RECIPES.get(name, name))


def refuse_searched(given: Recipe, base: Recipe, remedy: str) -> None:
    """Check that no flag sets what is searched.

    Raises:
        ValueError: one does.
    """
    if (given.views, given.objective.alpha, given.objective.lam) != (
        base.views,
        base.objective.alpha,
        base.objective.lam,
    ):
        raise ValueError(f"alpha, lambda, r_A and r_B are searched: {remedy}")


def around(
    name: str, before: str, options: Options, reach: Around
) -> Callable[[Inputs, Tracking], Stage]:
    """The stage ``name`` around the winner of the stage ``before`` it."""

    def grid(inputs: Inputs, store: Tracking) -> Stage:
        base = base_of(inputs.recipe, inputs.identity.data_fingerprint, inputs.selection_key)
        winner = winner_of(store, before, base, options.name, _command_of(before, options))
        steps = reach.steps(winner.finer())
        report.say(console, f"starts from the winner of {winner.search}: {winner.point}")
        tags = {
            "scd.started_from": winner.search,
            "scd.grid_steps": json.dumps(dataclasses.asdict(steps)),
        }
        return Stage(name, reach.space(winner.point, steps), tags)

    return grid


def _command_of(stage: str, options: Options) -> str:
    kind = "refine" if stage.startswith("refine") else stage
    depth = f" --depth {stage.removeprefix('refine')}" if stage > "refine" else ""
    name = f" --name {options.name}" if options.name else ""
    return f"python -m search.{kind}_grid --preset {options.preset}{name}{depth}"


def search(options: Options, settings: Recipe, stage: Callable[[Inputs, Tracking], Stage]) -> int:
    """Plan, search and report. Returns the exit code: 0 with a best point, else 1.

    Args:
        stage: Gives the grid, which may depend on what the store holds of the stage before.
    """
    inputs = prepare(_absolute(settings))
    store = Tracking()
    plan = _plan(options, inputs, stage(inputs, store))
    refuse_another(plan)
    _print_plan(plan, inputs, len(read_outcomes(plan, store)))
    if options.dry_run:
        return 0
    untrained = _untrained(plan, inputs, store)
    try:
        outcomes = run_search(plan, store, untrained, console, address=options.address)
    except Interrupted as stop:
        done = f"{len(read_outcomes(plan, store))} of {plan.size} points finished"
        report.say(console, f"stopped by {stop}: {done}. Go on with:\n  {plan.command}")
        return stop.exit_code
    best = report.write_best(plan, outcomes, untrained.get(plan.metric))
    if best is not None:
        report.write_model_card(plan, inputs, outcomes)
        report.attach(plan, store, best)
    report.print_report(plan, outcomes, untrained, best, store, console)
    return 1 if best is None else 0


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


def _plan(options: Options, inputs: Inputs, stage: Stage) -> Plan:
    trials, seeds = options.max_trials, options.seeds or (inputs.recipe.seed,)
    if trials is None and options.sampler != "grid":
        trials = _QUICK_TRIALS if options.preset == "quick" else _TRIALS
    tags = inputs.tags() | collect().tags() | dict(stage.tags)
    of_one_run = {"scd.identity", "scd.recipe_hash", "scd.preset", "scd.seed"}
    there = cluster.resources(options.address)
    cpus, gpus = there or (cpu_count(), torch.cuda.device_count())
    return Plan(
        stage=stage.name,
        recipe=inputs.recipe,
        space=stage.space,
        data_fingerprint=inputs.identity.data_fingerprint,
        metric=inputs.selection_key,
        steps=inputs.total_steps,
        share=share_out(
            len(stage.space.points) * len(seeds),
            cpus,
            gpus,
            None if there else free_bytes(),
            options.concurrent,
            options.cpus_per_trial,
            options.gpus_per_trial,
        ),
        seeds=seeds,
        sampler=options.sampler,
        pruning=options.pruning,
        budget=Budget(trials, options.max_hours, options.retries),
        chosen_name=options.name,
        preset=options.preset or "",
        data=tuple(inputs.data_inputs()),
        tags={name: value for name, value in tags.items() if name not in of_one_run},
        command=tags["scd.command"],
    )


def _untrained(plan: Plan, inputs: Inputs, store: Tracking) -> Mapping[str, float | None]:
    """Dev scores of the encoder as it comes; read back where a search of it has them already."""
    prefix = "untrained."
    for run in store.find("search", scd__base=plan.base):
        known = {k.removeprefix(prefix): v for k, v in run.metrics.items() if k.startswith(prefix)}
        if known:
            return known
    with console.status("scoring the untrained encoder"):
        return {score.key: score.value for score in untrained_scores(inputs)}


def _print_plan(plan: Plan, inputs: Inputs, finished: int) -> None:
    share, space = plan.share, plan.space
    each = f"{share.cpus:g} CPU" + (f" and {share.gpus:g} GPU" if share.gpus else "")
    rates = [" ".join(f"{100 * rate:g}%" for rate in rates) for rates in (space.r_a, space.r_b)]
    points = f"{len(space.points):,}: alpha {_list(space.alpha)}; lambda {_list(space.lam)}; "
    trials = f"{plan.size:,}"
    if len(plan.seeds) > 1:
        trials += f", each point with seeds {' '.join(map(str, plan.seeds))}"
    if plan.sampler != "grid":
        trials += f", chosen by {plan.sampler}"
    view = Table.grid(padding=(0, 2))
    for key, value in {
        "search": plan.name,
        "points": points + f"r_A {rates[0]}; r_B {rates[1]}; r_A < r_B",
        "trials": trials,
        "finished": f"{finished} already, {max(0, plan.size - finished)} to run",
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
    """Values; a long ladder by its ends and its step."""
    if len(values) <= 6:
        return " ".join(f"{value:g}" for value in values)
    return f"{values[0]:g} to {values[-1]:g} by {values[1] - values[0]:.6g}"
