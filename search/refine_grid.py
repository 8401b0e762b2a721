"""``python -m search.refine_grid``: a grid below the paper's finest steps, where its optima lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tyro

from scd_core import cli
from scd_core.recipe import Recipe
from search import command
from search.options import Flags, Options, Settings
from search.stages import REFINE, Around, refine_stage


@dataclass(frozen=True)
class Command:
    """Search around the winner of the fine grid, in steps of 0.001 (alpha) and 0.5% (r_A, r_B).

    The published optima (alpha 0.005 and 0.0033, r_A 6.5%, lambda 0.013 and 0.028) are on neither
    grid that the paper states. Depth 2 starts from the winner of depth 1 in finer steps still.
    Examples:

      python -m search.refine_grid --preset quick
      python -m search.refine_grid --preset paper --data-dir data --max-trials 100
      python -m search.refine_grid --preset paper --data-dir data --depth 2
    """

    depth: int = 1
    """How many refinements: 1 starts from the fine grid, each other from the one before."""
    options: Flags = field(default_factory=lambda: Options(sampler="tpe"))
    around: Around = REFINE
    settings: Settings = field(default_factory=Recipe)


def run(arguments: Sequence[str]) -> int:
    """Parse flags, search and report. Returns the exit code: 0 with a best point, else 1."""
    name, base = command.start(arguments)
    default = Command(options=Options(preset=name, sampler="tpe"), settings=base)
    given = tyro.cli(Command, args=arguments, default=default, prog="python -m search.refine_grid")
    remedy = "they come from the search before; --around.* says how far around its winner to look"
    command.refuse_searched(given.settings, base, remedy)
    before = "fine" if given.depth == 1 else refine_stage(given.depth - 1)
    stage = command.around(
        refine_stage(given.depth), before, given.options, given.around, arguments
    )
    return command.search(given.options, given.settings, stage)


if __name__ == "__main__":
    cli.main(run)
