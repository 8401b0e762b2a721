"""The paper's tables, measured beside published: ``python -m reproduce.tables``.

It reads MLflow and the published numbers, and writes only the files asked for with ``--out``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from reproduce import render
from reproduce.compare import Table, build
from scd_core import cli, places

if TYPE_CHECKING:
    from scd_core.tracking import RunInfo


@dataclass(frozen=True)
class Options:
    """Print a table of the paper: published rows beside the rows measured in MLflow."""

    table: Literal[1] = 1
    """Number of the table in the paper."""
    format: Literal["terminal", "markdown", "csv"] = "terminal"
    """What to print. csv is the whole frame with all digits."""
    protocol: Annotated[str | None, tyro.conf.arg(metavar="FINGERPRINT")] = None
    """Evaluation protocol, or the beginning of its fingerprint, whose runs are shown; default: the
    one with most runs. Runs of different protocols never share a table."""
    out: Path | None = None
    """Folder to write table<N>.md and table<N>.csv to as well, e.g. results."""


def write(table: Table, number: int, folder: Path) -> list[Path]:
    """Write a table as Markdown and CSV; the same runs give the same bytes.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        folder / f"table{number}.md": render.markdown(table),
        folder / f"table{number}.csv": render.csv(table),
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


def run(arguments: Sequence[str]) -> int:
    """Parse flags, build and print. Returns the exit code.

    Raises:
        ValueError: the protocol asked for is not that of any run.
    """
    options = tyro.cli(Options, prog="python -m reproduce.tables", args=arguments)
    table = build(options.table, _tracked_runs(), options.protocol)
    if options.format == "terminal":
        render.print_terminal(table)
    else:
        sys.stdout.write(render.csv(table) if options.format == "csv" else render.markdown(table))
    if options.out:
        for path in write(table, options.table, options.out):
            print(f"wrote {path}", file=sys.stderr)
    return 0


def _tracked_runs() -> list[RunInfo]:
    """Every run that could enter a table; a store that does not exist is not made."""
    uri = places.tracking_uri()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return []
    from scd_core.tracking import Tracking  # here: importing MLflow takes seconds

    tracking = Tracking(uri)
    return [*tracking.find("train"), *tracking.find("evaluation")]


if __name__ == "__main__":
    cli.main(run)
