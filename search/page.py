"""A search's report as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from search import figures
from search.advice import wider
from search.analysis import Confirmation, edges, importance
from search.outcome import Outcome, Standing, ranked
from search.plan import Plan
from search.report import cells, number

_ROWS = 200
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4 }
th:last-child, td:last-child { text-align: left }
pre { background: #f5f5f5; padding: .7rem; overflow-x: auto }
img { max-width: 100%; height: auto } .warning { border-left: 4px solid #c77; padding-left: .8rem }
.note { color: #666 }
"""


def write_page(
    plan: Plan,
    outcomes: Sequence[Outcome],
    untrained: Mapping[str, float | None],
    recipe: Path | None,
    costs: Sequence[str],
    confirmation: Confirmation | None = None,
) -> Path:
    """Write ``report.html`` in the search's folder.

    Args:
        recipe: The best recipe's file; None where no trial has a score.
        costs: Lines on forecast and spending.
    """
    standings, before = ranked(outcomes), untrained.get(plan.metric)
    parts = [f"<h1>{escape(plan.name)}</h1>", _summary(plan, outcomes, before, costs)]
    if recipe is not None and standings:
        parts += _winner(plan, standings[0], recipe, confirmation)
        parts += _pictures(plan, outcomes, standings, before)
    parts += [_ranking(plan, standings, before), _ended_early(outcomes)]
    path = plan.folder / "report.html"
    path.write_text(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(plan.name)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n",
        encoding="utf-8",
    )
    return path


def _summary(
    plan: Plan, outcomes: Sequence[Outcome], before: float | None, costs: Sequence[str]
) -> str:
    states = [outcome.status for outcome in outcomes]
    counts = ", ".join(
        f"{states.count(status)} {status.lower()}"
        for status in ("FINISHED", "PRUNED", "FAILED", "KILLED")
        if status in states
    )
    rows = {
        "stage": plan.stage,
        "encoder": f"{plan.recipe.model.name}, {plan.recipe.model.pooling} pooling",
        "data": ", ".join(f"{d.name} ({d.context})" for d in plan.data),
        "score": f"{plan.metric} x 100 where it is best, every {plan.recipe.selection.every} of "
        f"{plan.steps:,} steps; dev data only, no test set was read",
        "untrained": number(before),
        "trials": f"{counts} of {plan.size:,}; seeds {' '.join(map(str, plan.seeds))}; sampler "
        f"{plan.sampler}; pruning {plan.pruning.rule}",
        "command": plan.command,
    } | {f"cost {n}" if n else "cost": cost for n, cost in enumerate(costs)}
    cells = (
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"


def _winner(
    plan: Plan, winner: Standing, recipe: Path, confirmation: Confirmation | None
) -> list[str]:
    best = winner.best
    parts = [
        f"<h2>Best: {escape(str(winner.point))}</h2>",
        f"<p>{number(winner.mean)}"
        + (f", mean of {winner.n} seeds (s.d. {number(winner.spread)})" if winner.n > 1 else "")
        + f"; its best trial {number(best.score)} at step {best.step:,}.</p>",
    ]
    if confirmation:
        parts.append(f"<p>{escape(str(confirmation))}.</p>")
    else:
        parts.append(
            "<p class='note'>The best of several trials is an optimistic figure: --confirm trains "
            "the winner again on fresh seeds.</p>"
        )
    for edge in edges(plan, winner.point):
        command = escape(wider(plan.command, edge))
        parts.append(f"<div class='warning'>{escape(str(edge))}:<pre>{command}</pre></div>")
    text = escape(recipe.read_text(encoding="utf-8"))
    command = escape(f"python -m scd_core.train --recipe {recipe}")
    return [
        *parts,
        f"<pre>{command}</pre><details><summary>recipe</summary><pre>{text}</pre></details>",
    ]


def _pictures(
    plan: Plan, outcomes: Sequence[Outcome], standings: Sequence[Standing], before: float | None
) -> list[str]:
    whole = [o.score for o in outcomes if o.whole and o.score is not None]
    means = {standing.point: standing.mean for standing in standings}
    parts = [
        "<h2>Where it is good</h2>",
        _picture(figures.heat_map(means, "alpha", "lambda"), "best score by alpha and lambda"),
        _picture(figures.heat_map(means, "r_A", "r_B"), "best score by r_A and r_B"),
        _picture(figures.parallel_coordinates(standings), "settings and score of every point"),
    ]
    shares = importance(plan, outcomes)
    if shares:
        parts += ["<h2>What matters</h2>", _picture(figures.bars(shares), "importance")]
        if plan.sampler == "tpe":
            parts.append(
                "<p class='note'>TPE's points are not spread evenly, which biases this.</p>"
            )
    parts += [
        "<h2>How it went</h2>",
        _picture(figures.over_time(outcomes, before), "scores over time"),
    ]
    if whole:
        parts += [
            "<h2>What fewer trials would have found</h2>",
            _picture(figures.best_of_n(whole), "expected best score by number of trials"),
            "<p class='note'>Expected best of n of this search's whole trainings, drawn at random "
            "(Dodge et al. 2019).</p>",
        ]
    return parts


def _ranking(plan: Plan, standings: Sequence[Standing], before: float | None) -> str:
    head = ("", *("alpha", "lambda", "r_A", "r_B", "n", "mean", "s.d.", "gain", "step", "status"))
    rows = [
        (
            str(rank),
            *cells(standing.best),
            str(standing.n),
            number(standing.mean),
            "" if standing.spread is None else number(standing.spread),
            "" if before is None else f"{standing.mean - before:+.2f}",
            str(standing.best.step),
            standing.best.reason or standing.best.status.lower(),
        )
        for rank, standing in enumerate(standings[:_ROWS], 1)
    ]
    more = len(standings) - _ROWS
    note = f"<p class='note'>{more} more are in MLflow.</p>" if more > 0 else ""
    return "<h2>All points</h2>" + _table(head, rows) + note


def _ended_early(outcomes: Sequence[Outcome]) -> str:
    head = ("alpha", "lambda", "r_A", "r_B", "seed", "steps", "status", "reason")
    rows = [
        (
            *cells(outcome),
            str(outcome.trial.recipe.seed),
            str(outcome.steps),
            outcome.status.lower(),
            outcome.reason,
        )
        for outcome in outcomes
        if outcome.status != "FINISHED"
    ]
    return "<h2>Failed and pruned</h2>" + (_table(head, rows[:_ROWS]) if rows else "<p>none</p>")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _picture(png: bytes, what: str) -> str:
    data = base64.b64encode(png).decode("ascii")
    return f"<img alt='{escape(what)}' src='data:image/png;base64,{data}'>"
