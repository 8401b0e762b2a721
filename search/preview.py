"""A search as it is announced before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scd_core.device import default_device
from scd_core.inputs import Inputs
from scd_core.recipe import Recipe
from search.forecast import needs
from search.plan import Plan
from search.report import say
from search.space import Space


def print_plan(plan: Plan, inputs: Inputs, finished: int, console: Console) -> None:
    """Print what will run, and where."""
    share = plan.share
    each = f"{share.cpus:g} CPU" + (f" and {share.gpus:g} GPU" if share.gpus else "")
    trials = f"{plan.size:,}"
    if len(plan.seeds) > 1:
        trials += f", each point with seeds {' '.join(map(str, plan.seeds))}"
    if plan.sampler != "grid":
        trials += f", chosen by {plan.sampler}"
    rungs = plan.pruning.rungs(plan.steps, plan.recipe.selection.every)
    if rungs:
        steps = " and ".join(map(str, rungs))
        trials += f"; one in {plan.pruning.keep} goes on after step {steps}"
    print_rows(
        {
            "search": plan.name,
            "points": points(plan.space),
            "trials": trials,
            "finished": f"{finished} already, {max(0, plan.size - finished)} to run",
            "encoder": f"{plan.recipe.model.name}, {plan.recipe.model.pooling} pooling, "
            f"on {default_device()}",
            "sentences": f"{len(inputs.corpus.sentences):,} ({inputs.corpus.name})",
            "steps": f"{plan.steps:,} each, of batch {plan.recipe.optim.batch_size}",
            "ranked by": f"best {plan.metric}, every {plan.recipe.selection.every} steps",
            "at a time": f"{share.concurrent} trials of {each}",
            "folder": str(plan.folder),
        },
        console,
    )


def print_rows(rows: Mapping[str, str], console: Console) -> None:
    """Print names and what they are."""
    view = Table.grid(padding=(0, 2))
    for key, value in rows.items():
        view.add_row(f"[bold]{key}[/]", escape(value))
    console.print(view, highlight=False)


def points(space: Space) -> str:
    """A grid in a line."""
    rates = [_list([100 * rate for rate in rates], "%") for rates in (space.r_a, space.r_b)]
    return (
        f"{len(space.points):,}: alpha {_list(space.alpha)}; lambda {_list(space.lam)}; "
        f"r_A {rates[0]}; r_B {rates[1]}; r_A < r_B"
    )


def _list(values: Sequence[float], unit: str = "") -> str:
    """Values; a long ladder by its ends and its step."""
    if len(values) <= 10:
        return " ".join(f"{value:g}{unit}" for value in values)
    step = values[1] - values[0]
    return f"{values[0]:g}{unit} to {values[-1]:g}{unit} by {step:.3g}{unit}"


def print_needs(recipe: Recipe, trials: int, console: Console) -> None:
    """Print what a search of that many trials needs that this machine lacks, where it is known."""
    for number, need in enumerate(needs(recipe, trials)):
        say(console, ("it needs   " if number == 0 else " " * 11) + need)
