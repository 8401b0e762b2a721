"""``python -m search.coarse_grid``: the paper's coarse grid (section 3.1), or its quick version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tyro

from scd_core import cli
from scd_core.recipe import Recipe
from search import command
from search.command import Stage
from search.options import Flags, Options, Settings
from search.space import COARSE, QUICK, Space


@dataclass(frozen=True)
class Command:
    """Train SCD at every point of a grid over alpha, lambda, r_A < r_B and rank them by dev score.

    Run it again to resume: finished points are read from MLflow, the others run. Examples:

      python -m search.coarse_grid --preset quick
      python -m search.coarse_grid --preset quick --corpus mine.txt --dev pairs.tsv
      python -m search.coarse_grid --preset quick --space.alpha 0.1 0.2 --optim.max-steps 100
      python -m search.coarse_grid --preset paper --data-dir data --dry-run
    """

    options: Flags = field(default_factory=Options)
    space: Space = COARSE
    settings: Settings = field(default_factory=Recipe)


def run(arguments: Sequence[str]) -> int:
    """Parse flags, search and report. Returns the exit code: 0 with a best point, else 1."""
    name, base = command.start(arguments)
    default = Command(Options(preset=name), QUICK if name == "quick" else COARSE, base)
    given = tyro.cli(Command, args=arguments, default=default, prog="python -m search.coarse_grid")
    remedy = "give their values with --space.alpha, --space.lam, --space.r-a and --space.r-b"
    command.refuse_searched(given.settings, base, remedy)
    return command.search(given.options, given.settings, Stage("coarse", given.space))


if __name__ == "__main__":
    cli.main(run)
