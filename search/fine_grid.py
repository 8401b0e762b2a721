"""``python -m search.fine_grid``: the paper's fine grid (section 3.1) around a coarse optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tyro

from scd_core import cli
from scd_core.recipe import Recipe
from search import command
from search.options import Flags, Options, Settings
from search.stages import FINE, Around


@dataclass(frozen=True)
class Command:
    """Search around the winner of the coarse grid, in steps of 0.01 (alpha) and 1% (r_A, r_B).

    The winner is found in MLflow, by recipe and data. The whole grid has 10^5 points, so TPE
    chooses from it; with a smaller reach, --sampler grid runs all. Run it again to
    resume. Examples:

      python -m search.fine_grid --preset quick
      python -m search.fine_grid --preset paper --data-dir data --max-trials 100
      python -m search.fine_grid --sampler grid --around.alpha-reach 2 --around.lam-reach 0 \\
        --around.rate-reach 1
    """

    options: Flags = field(default_factory=lambda: Options(sampler="tpe"))
    around: Around = FINE
    settings: Settings = field(default_factory=Recipe)


def run(arguments: Sequence[str]) -> int:
    """Parse flags, search and report. Returns the exit code: 0 with a best point, else 1."""
    name, base = command.start(arguments)
    default = Command(Options(preset=name, sampler="tpe"), settings=base)
    given = tyro.cli(Command, args=arguments, default=default, prog="python -m search.fine_grid")
    remedy = "they come from the coarse search; --around.* says how far around its winner to look"
    command.refuse_searched(given.settings, base, remedy)
    stage = command.around("fine", "coarse", given.options, given.around, arguments)
    return command.search(given.options, given.settings, stage)


if __name__ == "__main__":
    cli.main(run)
