"""What the commands of all stages share: their flags, the plan, the search and its report."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from scd_core import cli
from scd_core.cli import console
from scd_core.data import DataError
from scd_core.forecast import Cost, measure
from scd_core.inputs import Inputs, prepare
from scd_core.models import ModelNotFoundError
from scd_core.provenance import collect
from scd_core.recipe import Recipe, from_toml, preset, preset_names
from scd_core.tracking import Tracking
from search import cluster, preview, report
from search.advice import stage_before
from search.analysis import Confirmation
from search.claim import refuse_another
from search.conclusion import conclude
from search.forecast import forecast, spent
from search.interrupt import Interrupted
from search.ledger import read_outcomes
from search.options import Options
from search.outcome import Outcome, ranked
from search.plan import Budget, Plan, base_of
from search.pruning import Pruning
from search.runner import run_search
from search.space import Space
from search.stages import Around, winner_of

_RECIPES = {"paper": "scd-bert-paper"}  # every other preset has its recipe's name
_TRIALS, _QUICK_TRIALS = 60, 8  # of a search that does not run its whole grid


@dataclass(frozen=True)
class Stage:
    """A grid, ready to be searched."""

    name: str
    space: Space
    tags: Mapping[str, str] = field(default_factory=dict)
    """Said of the search in MLflow."""


StageOf = Callable[[Inputs, Tracking], Stage]
"""Gives the grid that depends on what the store holds of the stage before."""


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
    name: str, before: str, options: Options, reach: Around, arguments: Sequence[str]
) -> StageOf:
    """The stage ``name`` around the winner of the stage ``before`` it.

    Args:
        arguments: Of the command, for the error where there is no such winner.
    """

    def grid(inputs: Inputs, store: Tracking) -> Stage:
        base = base_of(inputs.recipe, inputs.identity.data_fingerprint, inputs.selection_key)
        missing = stage_before(before, options.preset or "", arguments)
        winner = winner_of(store, before, base, options.name, missing)
        steps = reach.steps(winner.finer())
        report.say(console, f"starts from the winner of {winner.search}: {winner.point}")
        tags = {
            "scd.started_from": winner.search,
            "scd.grid_steps": json.dumps(dataclasses.asdict(steps)),
        }
        return Stage(name, reach.space(winner.point, steps), tags)

    return grid


def search(options: Options, settings: Recipe, stage: Stage | StageOf) -> int:
    """Plan, search and report. Returns the exit code: 0 with a best point, else 1."""
    began = time.monotonic()
    try:
        inputs = prepare(settings)
    except (DataError, ModelNotFoundError) as missing:
        if not options.dry_run:
            raise
        return _print_needs(options, settings, stage, missing)
    store = Tracking()
    grid = stage if isinstance(stage, Stage) else stage(inputs, store)
    plan = _plan(options, inputs, grid)
    refuse_another(plan, store)
    known = read_outcomes(plan, store).values()
    preview.print_plan(plan, inputs, len(known), console)
    cost, untrained = _calibrated(plan, inputs, store, len(known), options)
    ahead = forecast(plan, cost, known) if cost else None
    if ahead:
        report.say(console, f"forecast   {ahead}")
    if options.dry_run:
        _print_alternatives(plan, cost)
        return 0
    try:
        outcomes = run_search(plan, store, untrained, console, address=options.address)
        seconds, before = time.monotonic() - began, sum(outcome.steps for outcome in known)
        costs = [f"forecast {ahead}"] if ahead else []
        costs.append(spent(plan, outcomes, seconds, before))
        confirmation = None
        try:
            confirmation = _confirmed(options, plan, store, outcomes, untrained, seconds)
        finally:  # this search is over, whatever becomes of that one
            code = conclude(plan, inputs, store, outcomes, untrained, costs, confirmation, console)
    except Interrupted as stop:
        done = f"{len(read_outcomes(plan, store))} of {plan.size} points finished"
        report.say(console, f"stopped by {stop}: {done}. Go on with:\n  {plan.command}")
        return stop.exit_code
    return code


def _confirmed(
    options: Options,
    plan: Plan,
    store: Tracking,
    outcomes: Sequence[Outcome],
    untrained: Mapping[str, float | None],
    seconds: float,
) -> Confirmation | None:
    """Train the winner on fresh seeds, as a search of one point.

    Args:
        seconds: That this command has taken.

    Returns:
        None where that is not asked, or not yet possible.
    """
    winner = next(iter(ranked(outcomes)), None)
    if not options.confirm or winner is None:
        return None
    hours = None if options.max_hours is None else options.max_hours - seconds / 3600
    left = plan.size - sum(outcome.status != "KILLED" for outcome in outcomes)
    if left > 0 or (hours is not None and hours <= 0):
        why = f"{left} of {plan.size} trials left to run" if left > 0 else "--max-hours are over"
        report.say(console, f"--confirm waits: {why}. Go on with:\n  {plan.command}")
        return None
    point = winner.point
    again = dataclasses.replace(
        plan,
        stage=f"{plan.stage}-confirm",
        space=Space((point.alpha,), (point.lam,), (point.r_a,), (point.r_b,)),
        seeds=tuple(range(max(plan.seeds) + 1, max(plan.seeds) + 1 + options.confirm)),
        sampler="grid",
        pruning=Pruning(),
        budget=Budget(hours=hours, retries=options.retries),
    )
    if plan.chosen_name:  # with another winner, or more seeds, it is another search
        name = f"{plan.chosen_name}-{again.identity[:8]}"
        again = dataclasses.replace(again, chosen_name=name)
    report.say(console, f"training the winner, {point}, on {options.confirm} fresh seeds")
    found = run_search(again, store, untrained, console, address=options.address)
    return Confirmation(winner.mean, tuple(found))


def _plan(options: Options, inputs: Inputs, stage: Stage) -> Plan:
    seeds = options.seeds or (inputs.recipe.seed,)
    tags = inputs.tags() | collect().tags() | dict(stage.tags)
    of_one_run = {"scd.identity", "scd.recipe_hash", "scd.preset", "scd.seed"}
    return Plan(
        stage=stage.name,
        recipe=inputs.recipe,
        space=stage.space,
        data_fingerprint=inputs.identity.data_fingerprint,
        metric=inputs.selection_key,
        steps=inputs.total_steps,
        share=cluster.share_of(
            options.address,
            len(stage.space.points) * len(seeds),
            options.concurrent,
            options.cpus_per_trial,
            options.gpus_per_trial,
        ),
        seeds=seeds,
        sampler=options.sampler,
        pruning=options.pruning,
        budget=Budget(_trials(options), options.max_hours, options.retries),
        chosen_name=options.name,
        preset=options.preset or "",
        data=tuple(inputs.data_inputs()),
        tags={name: value for name, value in tags.items() if name not in of_one_run},
        command=tags["scd.command"],
    )


def _trials(options: Options) -> int | None:
    """How many trials the search is to have; None for the whole grid."""
    if options.max_trials is None and options.sampler != "grid":
        return _QUICK_TRIALS if options.preset == "quick" else _TRIALS
    return options.max_trials


def _calibrated(
    plan: Plan, inputs: Inputs, store: Tracking, known: int, options: Options
) -> tuple[Cost | None, Mapping[str, float | None]]:
    """What a trial costs, and the dev scores of the encoder as it comes.

    Where nothing is left to run, there is no cost, and the scores are those recorded.
    """
    if known >= plan.size:
        prefix = "untrained."
        for run in store.find("search", scd__base=plan.base):
            found = {k.removeprefix(prefix): v for k, v in run.metrics.items()}
            scores = {k: v for k, v in found.items() if f"{prefix}{k}" in run.metrics}
            if scores:
                return None, scores
    with console.status("timing a few steps and scoring the untrained encoder"):
        threads = max(1, int(plan.share.cpus))
        cost = cluster.call(options.address, plan.share, measure, inputs, threads)
    return cost, {score.key: score.value for score in cost.untrained}


def _print_alternatives(plan: Plan, cost: Cost | None) -> None:
    """What pruning would change, and what this machine lacks."""
    halved = dataclasses.replace(plan, pruning=Pruning("halving"))
    saves = halved.pruning.rungs(plan.steps, plan.recipe.selection.every)
    if cost and saves and plan.pruning.rule != "halving":
        report.say(console, f"with --pruning.rule halving   {forecast(halved, cost)}")
    if not plan.share.gpus:
        preview.print_needs(plan.recipe, plan.size, console)


def _print_needs(
    options: Options, settings: Recipe, stage: Stage | StageOf, missing: ValueError
) -> int:
    """The plan as far as it can be made where something that a trial reads is not there."""
    if not isinstance(stage, Stage):
        raise missing
    space, seeds = stage.space, options.seeds or (settings.seed,)
    trials = min(_trials(options) or 10**9, len(space.points) * len(seeds))
    rows = {"stage": stage.name, "points": preview.points(space), "trials": f"{trials:,}"}
    preview.print_rows(rows, console)
    report.say(console, f"not here   {missing}")
    if not torch.cuda.is_available():
        preview.print_needs(settings, trials, console)
    return 0
