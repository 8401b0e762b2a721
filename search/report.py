"""A search's end: the ranked table, and the best recipe as a file that training takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scd_core.export import write_card
from scd_core.inputs import Inputs
from scd_core.provenance import collect
from scd_core.run_folder import model_path, read_result
from scd_core.tracking import Tracking
from search.outcome import Outcome, ranked
from search.plan import Plan

_ROWS = 30


def write_best(plan: Plan, outcomes: Sequence[Outcome], untrained: float | None) -> Path | None:
    """Write the best trial's recipe to ``best.toml`` in the search's folder; None without one.

    The recipe plans the trial's whole training, since the learning rate falls over all planned
    steps; trained with it, the best evaluation comes at the same step again.
    """
    best = next(iter(ranked(outcomes)), None)
    if best is None:
        return None
    path = plan.folder / "best.toml"
    path.write_text(
        f"# Best of {len(plan.trials)} points of the search {plan.name}: {best.trial.point}\n"
        f"# {plan.metric} {_number(best.score)} at step {best.step} of {plan.steps}; "
        f"untrained {_number(untrained)}\n{best.trial.recipe.to_toml()}",
        encoding="utf-8",
    )
    return path


def write_model_card(plan: Plan, inputs: Inputs, outcomes: Sequence[Outcome]) -> None:
    """Write the card of the best trial's model, where that model was kept."""
    trial = ranked(outcomes)[0].trial
    folder = plan.folder_of(trial)
    result = read_result(folder)
    if result is None or result.best is None or not model_path(folder).is_dir():
        return
    own = dataclasses.replace(inputs, recipe=trial.recipe)
    write_card(model_path(folder), own, result.best.scores, result.best.step, (), collect())


def attach(plan: Plan, store: Tracking, path: Path) -> None:
    """Keep ``path`` with the search's own MLflow run."""
    runs = store.find("search", scd__identity=plan.identity)
    store.artifact(max(runs, key=lambda run: run.start_time).run_id, path)


def table(plan: Plan, outcomes: Sequence[Outcome], untrained: Mapping[str, float | None]) -> Table:
    """Trials by best dev evaluation under the untrained encoder; then what failed, and why."""
    before = untrained.get(plan.metric)
    title = f"search {plan.name}, ranked by {plan.metric}"
    view = Table(title=title, title_justify="left")
    for name in ("", "alpha", "lambda", "r_A", "r_B", "step", "score", "gain"):
        view.add_column(name, justify="right")
    view.add_column("status", overflow="fold")
    view.add_row("", "", "", "", "", "", _number(before), "", "untrained encoder")
    view.add_section()
    best = ranked(outcomes)
    for rank, outcome in enumerate(best[:_ROWS], 1):
        view.add_row(
            str(rank),
            *_point(outcome),
            str(outcome.step),
            _number(outcome.score),
            _gain(outcome.score, before),
            "best" if rank == 1 else "finished",
            style="bold" if rank == 1 else None,
        )
    if len(best) > _ROWS:
        view.add_row("...", *[""] * 7, f"{len(best) - _ROWS} more in MLflow")
    view.add_section()
    for outcome in outcomes:
        if not outcome.valid:
            status = outcome.status.lower()
            view.add_row("", *_point(outcome), "", "", "", f"{status}: {outcome.reason}")
    return view


def print_report(
    plan: Plan,
    outcomes: Sequence[Outcome],
    untrained: Mapping[str, float | None],
    best: Path | None,
    store: Tracking,
    console: Console,
) -> None:
    """Print the table, where the best recipe lies, and what to do next."""
    console.print(table(plan, outcomes, untrained))
    valid = ranked(outcomes)
    say(console, f"{len(valid)} of {len(plan.trials)} trials finished.")
    if len(valid) < len(plan.trials):
        say(console, f"The same command tries the others again:\n  {plan.command}")
    if best is None:
        say(console, "no valid trial: no point of the grid has a defined dev score")
    else:
        before = untrained.get(plan.metric)
        if before is not None and valid[0].score is not None and valid[0].score <= before:
            say(console, "no point of this grid is better than the untrained encoder")
        say(console, f"best recipe: {best}\n  python -m scd_core.train --recipe {best}")
        model = model_path(plan.folder_of(valid[0].trial))
        if model.is_dir():
            say(console, f"its model: {model}")
    address = f"mlflow ui --host 127.0.0.1 --backend-store-uri {store.address}"
    say(console, f"to inspect the trials: make ui, which is\n  {address}")


def say(console: Console, text: str) -> None:
    """Print plain text whose long lines, commands and paths, can be copied whole."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _point(outcome: Outcome) -> tuple[str, ...]:
    point = outcome.trial.point
    rates = f"{100 * point.r_a:g}%", f"{100 * point.r_b:g}%"
    return f"{point.alpha:g}", f"{point.lam:g}", *rates


def _number(score: float | None) -> str:
    return "undefined" if score is None else f"{score:.2f}"


def _gain(score: float | None, before: float | None) -> str:
    return "" if score is None or before is None else f"{score - before:+.2f}"
