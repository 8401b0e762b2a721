"""The paper's Figure 2, and heat maps of searches: ``python -m reproduce.figures``.

Figure 2 is drawn from MLflow and the published figures: alignment against uniformity (the smaller,
the better), the STS average as colour.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import tyro

from reproduce import render
from reproduce.compare import Table, build
from reproduce.published import AVERAGE, published_table
from reproduce.sheet import sheet
from reproduce.tables import open_store, tracked_runs
from scd_core import cli, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KEY_WIDTH = 74  # characters that fit beside the drawing


@dataclass(frozen=True)
class Options:
    """Draw Figure 2 from what MLflow holds and what was published, as PNG and SVG; with --search,
    the heat maps of searches instead."""

    output: Path = Path("results")
    """Folder for figure2.png, figure2.svg and the points as figure2.csv and figure2.md."""
    search: tuple[str, ...] = ()
    """Names of searches, e.g. coarse-paper-1f0c9e2b: alpha by lambda, and r_A by r_B."""
    protocol: Annotated[str | None, tyro.conf.arg(metavar="FINGERPRINT")] = None
    """Evaluation protocol, or the beginning of its fingerprint; default: that of most runs."""


def run(arguments: Sequence[str]) -> int:
    """Parse flags, draw and write. Returns the exit code."""
    options = tyro.cli(Options, prog="python -m reproduce.figures", args=arguments)
    store = open_store()
    if options.search:
        if store is None:
            raise ValueError(f"--search: the MLflow store {places.tracking_uri()} is not there")
        from reproduce import heat_maps  # here: the search's modules take seconds

        written = [
            p for name in options.search for p in heat_maps.write(store, name, options.output)
        ]
    else:
        written = write(build("figure2", tracked_runs(store), options.protocol), options.output)
    for path in written:
        print(f"wrote {path}")
    return 0


def points(table: Table) -> pd.DataFrame:
    """The points of Figure 2, published ones first.

    Columns: title, kind ("published" or "measured"), alignment, uniformity, average, and the
    measured ones' alignment_sd and uniformity_sd. A row without all three values has no point.
    """
    averages = {row.id: row.scores[AVERAGE] for row in published_table("table1").rows}
    found: list[dict[str, object]] = []
    for kind, column in (("published", "published"), ("measured", "mean")):
        for row, cells in table.frame.groupby("row", sort=False):
            values = cells.set_index("column")[column].to_dict()
            deviations = cells.set_index("column")["sd"].to_dict()
            if kind == "published":
                values[AVERAGE], deviations = averages.get(str(row)), {}
            found.append(
                {
                    "title": cells["title"].iloc[0],
                    "kind": kind,
                    "alignment": values["alignment"],
                    "uniformity": values["uniformity"],
                    "average": values[AVERAGE],
                    "alignment_sd": deviations.get("alignment"),
                    "uniformity_sd": deviations.get("uniformity"),
                }
            )
    frame = pd.DataFrame(found)
    return frame.dropna(subset=["alignment", "uniformity", "average"]).reset_index(drop=True)


def draw(frame: pd.DataFrame) -> Figure:
    """Figure 2 of those points, numbered, with a key beside it."""
    from matplotlib.figure import Figure  # here: it takes seconds

    key = _key(frame)
    figure = Figure(figsize=(11, max(5.2, 0.17 * key.count("\n"))), layout="constrained")
    axes, names = figure.subplots(1, 2, width_ratios=[1.15, 1])
    colours = {"vmin": frame["average"].min() - 0.5, "vmax": frame["average"].max() + 0.5}
    for kind, marker in (("published", "D"), ("measured", "o")):
        some = frame[frame["kind"] == kind]
        axes.errorbar(
            some["uniformity"],
            some["alignment"],
            xerr=some["uniformity_sd"].astype(float).fillna(0),
            yerr=some["alignment_sd"].astype(float).fillna(0),
            fmt="none",
            ecolor="0.6",
            zorder=1,
        )
        dots = axes.scatter(
            some["uniformity"],
            some["alignment"],
            c=some["average"].astype(float),
            cmap="viridis",
            marker=marker,
            s=70,
            edgecolors="black" if kind == "published" else "white",
            linewidths=1.5,
            label=f"{kind} ({len(some)})",
            zorder=2,
            **colours,
        )
    figure.colorbar(dots, ax=axes, label="STS average, Spearman x 100", pad=0.01)
    names.set_axis_off()
    names.text(0, 1, key, va="top", fontsize=8, linespacing=1.4).set_in_layout(False)
    axes.set(xlabel="uniformity", ylabel="alignment")
    axes.margins(0.12)
    axes.grid(color="0.92", zorder=0)
    axes.legend(loc="upper right", frameon=False)
    figure.draw_without_rendering()  # what stands where is known only then
    _number(axes, frame)
    return figure


def _number(axes: Axes, frame: pd.DataFrame) -> None:
    """Number the points, each beside its own and none over another."""
    from adjustText import adjust_text  # here: as above

    across, up = frame["uniformity"].tolist(), frame["alignment"].tolist()
    labels = [
        axes.text(x, y, str(i), fontsize=9)
        for i, (x, y) in enumerate(zip(across, up, strict=True), 1)
    ]
    # a number of rounds, and no time: the same points give the same bytes
    line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.6}
    adjust_text(labels, across, up, ax=axes, expand=(1.8, 2.2), iter_lim=500, arrowprops=line)


def _key(frame: pd.DataFrame) -> str:
    """What the numbers at the points are, a line or several each, so that names never overlap."""
    lines = []
    for i, point in enumerate(frame.to_dict("records"), 1):
        what = f"{i}  {point['average']:.2f} {point['kind']}: {point['title']}"
        lines += textwrap.wrap(what, _KEY_WIDTH, subsequent_indent="     ")
    return "\n".join(lines)


def write(table: Table, folder: Path) -> list[Path]:
    """Write the figure and its points; the same runs give the same bytes.

    Returns:
        The files written.
    """
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    one = sheet(table)
    texts = {"figure2.csv": render.csv(one), "figure2.md": render.markdown(one)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    figure = draw(points(table))
    with matplotlib.rc_context({"svg.hashsalt": "figure2", "svg.fonttype": "none"}):
        figure.savefig(folder / "figure2.svg", metadata={"Date": None})
        figure.savefig(folder / "figure2.png", dpi=150, metadata={"Software": None})
    return [folder / name for name in ("figure2.svg", "figure2.png", *texts)]


if __name__ == "__main__":
    cli.main(run)
