"""The paper's tables, measured beside published: ``python -m reproduce.tables``.

It reads MLflow and the published numbers, and writes only into the folder of ``--output``.
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
from reproduce.layouts import LAYOUTS, TRANSFER_PROTOCOL, Name
from reproduce.sheet import Sheet, sheet
from scd_core import cli, places

if TYPE_CHECKING:
    from scd_core.tracking import RunInfo

TableName = Literal["1", "2", "3", "fidelity"]
_FORMATS = {"markdown": render.markdown, "csv": render.csv, "latex": render.latex}


@dataclass(frozen=True)
class Options:
    """Print tables of the paper: published rows beside the rows measured in MLflow. Examples:

    python -m reproduce.tables --table 1 3
    python -m reproduce.tables --table fidelity --format csv
    python -m reproduce.tables --output results
    """

    table: tuple[TableName, ...] = ("1", "2", "3")
    """Tables 1 to 3 of the paper, and fidelity: SCD with one difference between paper and released
    code switched at a time."""
    format: Literal["terminal", "markdown", "csv", "latex", "html"] = "terminal"
    """What to print. csv is the whole frame with all digits, a blank line between tables."""
    protocol: Annotated[str | None, tyro.conf.arg(metavar="FINGERPRINT")] = None
    """Evaluation protocol of similarity, or the beginning of its fingerprint, whose runs are shown;
    default: the one with most runs. Runs of different protocols never share a table."""
    transfer_protocol: Annotated[str | None, tyro.conf.arg(metavar="FINGERPRINT")] = None
    """The same for the transfer tasks of Table 2."""
    output: Path | None = None
    """Write every table in every format into this folder, e.g. results, instead of printing."""


@dataclass(frozen=True)
class Source:
    """The runs of a store and the protocols asked for."""

    runs: list[RunInfo]
    protocol: str | None = None
    transfer_protocol: str | None = None

    def table(self, name: Name) -> Table:
        """Build one table."""
        of_transfer = LAYOUTS[name].protocol_tag == TRANSFER_PROTOCOL
        return build(name, self.runs, self.transfer_protocol if of_transfer else self.protocol)


def run(arguments: Sequence[str]) -> int:
    """Parse flags, build and print. Returns the exit code.

    Raises:
        ValueError: the protocol asked for is not that of any run.
    """
    options = tyro.cli(Options, prog="python -m reproduce.tables", args=arguments)
    source = Source(tracked_runs(), options.protocol, options.transfer_protocol)
    if options.output:
        for path in write(source, options.output):
            print(f"wrote {path}")
        return 0
    names: dict[TableName, Name] = {
        "1": "table1",
        "2": "table2",
        "3": "table3",
        "fidelity": "fidelity",
    }
    _print([sheet(source.table(names[one])) for one in options.table], options.format)
    return 0


def write(source: Source, folder: Path) -> list[Path]:
    """Write everything in every format; the same runs give the same bytes.

    Returns:
        The files written.
    """
    sheets = [sheet(source.table(name)) for name in LAYOUTS if name != "figure2"]
    files: dict[str, str] = {}
    for one in sheets:
        files[f"{one.name}.md"] = render.markdown(one)
        files[f"{one.name}.csv"] = render.csv(one)
        files[f"{one.name}.tex"] = render.latex(one)
    files["tables.tex"] = render.latex_document([one.name for one in sheets])
    files["tables.html"] = render.html("Tables", sheets)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def tracked_runs() -> list[RunInfo]:
    """Every run that could enter a table; a store that does not exist is not made."""
    uri = places.tracking_uri()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return []
    from scd_core.tracking import Tracking  # here: importing MLflow takes seconds

    tracking = Tracking(uri)
    return [*tracking.find("train"), *tracking.find("evaluation")]


def _print(sheets: Sequence[Sheet], name: str) -> None:
    if name == "terminal":
        for one in sheets:
            render.terminal(one)
    elif name == "html":
        sys.stdout.write(render.html("Tables", sheets))
    else:
        sys.stdout.write("\n".join(_FORMATS[name](one) for one in sheets))


if __name__ == "__main__":
    cli.main(run)
