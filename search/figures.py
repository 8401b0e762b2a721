"""Pictures of a search, each as a PNG's bytes."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search.analysis import SYMBOLS, best_by, expected_best
from search.outcome import Outcome, Standing
from search.space import Point

_DPI = 110
_CELLS = 12  # beyond so many values a heat map's cells carry no numbers


def heat_map(means: Mapping[Point, float], across: str, up: str) -> bytes:
    """Best mean score at each pair of values; empty cells were not tried."""
    cells = best_by(means, across, up)
    columns = sorted({x for x, _ in cells})
    rows = sorted({y for _, y in cells})
    grid = np.full((len(rows), len(columns)), np.nan)
    for (x, y), score in cells.items():
        grid[rows.index(y), columns.index(x)] = score
    figure, axes = _figure(5.2, 3.8)
    image = axes.imshow(grid, origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(columns)), [_text(across, v) for v in columns], rotation=45)
    axes.set_yticks(range(len(rows)), [_text(up, v) for v in rows])
    axes.set(xlabel=across, ylabel=up)
    if max(len(rows), len(columns)) <= _CELLS:
        middle = float(np.nanmean(grid))
        for y, x in itertools.product(range(len(rows)), range(len(columns))):
            if not math.isnan(grid[y, x]):
                color = "white" if grid[y, x] < middle else "black"
                axes.text(x, y, f"{grid[y, x]:.2f}", ha="center", va="center", color=color, size=7)
    figure.colorbar(image, ax=axes, label="dev score")
    return _png(figure)


def parallel_coordinates(standings: Sequence[Standing]) -> bytes:
    """A line for each point through its settings, coloured by score, the best on top."""
    figure, axes = _figure(8.0, 3.6)
    points = [standing.point.symbols() for standing in standings]
    places = {
        symbol: {value: n for n, value in enumerate(sorted({p[symbol] for p in points}))}
        for symbol in SYMBOLS
    }
    means = [standing.mean for standing in standings]
    least, span = min(means), (max(means) - min(means)) or 1.0
    for point, mean in reversed(list(zip(points, means, strict=True))):
        heights = [
            places[s][point[s]] / max(1, len(places[s]) - 1) if len(places[s]) > 1 else 0.5
            for s in SYMBOLS
        ]
        share = (mean - least) / span
        color = colormaps["viridis"](share)
        axes.plot([*range(4), 4], [*heights, share], color=color, linewidth=0.8 + share, alpha=0.8)
    for column, symbol in enumerate(SYMBOLS):
        values = list(places[symbol])
        shown = values if len(values) <= _CELLS else [values[0], values[-1]]
        for value in shown:
            height = places[symbol][value] / max(1, len(values) - 1) if len(values) > 1 else 0.5
            axes.text(column - 0.03, height, _text(symbol, value), size=7, ha="right", va="center")
    for height, mean in ((0.0, least), (1.0, max(means))):
        axes.text(4.03, height, f"{mean:.2f}", size=7, va="center")
    axes.set_xticks(range(5), [*SYMBOLS, "dev score"])
    axes.set_yticks([])
    axes.set_xlim(-0.4, 4.4)
    return _png(figure)


def over_time(outcomes: Sequence[Outcome], untrained: float | None) -> bytes:
    """Scores by the time at which trials ended, with the best so far."""
    ended = sorted(
        (o.seconds[1], o.score, o.status) for o in outcomes if o.seconds and o.score is not None
    )
    figure, axes = _figure(6.4, 3.2)
    first = ended[0][0] if ended else 0.0
    for status, marker in (("FINISHED", "o"), ("PRUNED", "x")):
        mine = [((when - first) / 60, score) for when, score, s in ended if s == status]
        if mine:
            minutes, scores = zip(*mine, strict=True)
            axes.scatter(minutes, scores, s=18, marker=marker, label=status.lower())
    best = list(itertools.accumulate((score for _, score, _ in ended), max))
    axes.step(
        [(when - first) / 60 for when, _, _ in ended], best, where="post", label="best so far"
    )
    if untrained is not None:
        axes.axhline(untrained, linestyle=":", color="grey", label="untrained")
    axes.set(xlabel="minutes since the first trial's end", ylabel="dev score")
    axes.legend(fontsize=7)
    return _png(figure)


def best_of_n(scores: Sequence[float]) -> bytes:
    """Expected best dev score by the number of trials."""
    figure, axes = _figure(5.2, 3.2)
    expected = expected_best(scores)
    axes.plot(range(1, len(expected) + 1), expected, marker="o" if len(expected) < 30 else "")
    axes.set(xlabel="trials", ylabel="expected best dev score")
    return _png(figure)


def bars(shares: Mapping[str, float]) -> bytes:
    """Importance of each setting."""
    figure, axes = _figure(4.6, 2.4)
    names = list(shares)[::-1]
    axes.barh(names, [shares[name] for name in names])
    axes.set(xlabel="share of the score's variance (fANOVA)", xlim=(0, 1))
    return _png(figure)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    return file.getvalue()


def _text(symbol: str, value: float) -> str:
    return f"{100 * value:g}%" if symbol.startswith("r_") else f"{value:g}"
