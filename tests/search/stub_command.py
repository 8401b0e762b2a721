"""``search.coarse_grid`` with stub trainings, for tests that need the command as a process.

Usage: stub_command.py STUB LOG SECONDS FLAG..., where STUB is counted or durable.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy as np
import stubs

from scd_core import cli
from scd_core.corpus import Corpus
from scd_core.evaluation.pairs import Pairs
from scd_core.forecast import Cost
from scd_core.inputs import Inputs
from scd_core.recipe import Recipe
from search import coarse_grid, command
from search.runner import run_search


def stub_inputs(recipe: Recipe) -> Inputs:
    """Inputs that name no file."""
    pairs = Pairs("stsb", "dev", ["a", "b"], ["c", "d"], np.array([1.0, 2.0]), 2)
    corpus = Corpus("stub", [f"sentence {n}" for n in range(1000)], 0)
    return Inputs(recipe, corpus, (pairs,), Path("model"), "m" * 64)


def stub_cost(inputs: Inputs, threads: int) -> Cost:
    """A tenth of a second a step, half a second an evaluation."""
    return Cost(0.1, 0.5, 1.0, 10**6, 10**5, ())


if __name__ == "__main__":
    stub = getattr(stubs, sys.argv.pop(1))
    log, seconds = Path(sys.argv.pop(1)), float(sys.argv.pop(1))
    training = stub(log, seconds=seconds)
    command.prepare = stub_inputs
    command.measure = stub_cost
    command.run_search = functools.partial(run_search, training=training)
    cli.main(coarse_grid.run)
