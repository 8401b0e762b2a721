"""What a search is said to cost: worked by hand, and against the search itself."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
import stubs
from rich.console import Console
from stubs import STSB

from scd_core.data import DataError
from scd_core.forecast import Cost, measure
from scd_core.inputs import prepare
from scd_core.recipe import Recipe, from_toml
from scd_core.settings import Model
from scd_core.tracking import Tracking
from search import coarse_grid, command
from search.forecast import forecast, needs, spent
from search.machine import Share
from search.outcome import Outcome
from search.pruning import Pruning

COST = Cost(step=2.0, evaluation=5.0, setup=3.0, checkpoint=1000, model=100, untrained=())


def test_forecast_is_the_sum_of_its_parts() -> None:
    plan = stubs.plan((0.1, 0.2, 0.3), share=Share(2, 1, 0))  # 3 trials of 20 steps, every 10
    found = forecast(plan, COST)
    seconds = 3 * (3 + 20 * 2 + 2 * 5)
    assert (found.trials, found.steps) == (3, 60)
    assert found.wall_seconds == seconds / 2
    assert (found.device_hours, found.device) == (seconds / 3600, "CPU")
    assert found.disk == 2 * (2 * 1100 + 100) + 100
    on_gpus = forecast(stubs.plan((0.1,), share=Share(1, 4, 0.5)), COST)
    assert (on_gpus.device_hours, on_gpus.device) == (53 * 0.5 / 3600, "GPU")


def test_forecast_with_halving_counts_steps_jobs_and_waiting_checkpoints() -> None:
    alphas = tuple(round(0.1 * n, 1) for n in range(1, 17))
    plan = stubs.plan(alphas, steps=160, pruning=Pruning("halving"), share=Share(1, 1, 0))
    found = forecast(plan, COST)
    assert found.steps == 16 * 10 + 4 * 30 + 120 == 400
    assert found.wall_seconds == (16 + 4 + 1) * 3 + 400 * 2 + 40 * 5
    assert found.disk == (2 * 1100 + 100) + 100 + 4 * 1000


def test_forecast_is_of_what_is_left_and_spent_of_what_was_done() -> None:
    plan = stubs.plan((0.1, 0.2, 0.3, 0.4))
    done = [Outcome(plan.trials[0], "FINISHED", "", 20, 60.0, {STSB: 60.0}, steps=20)]
    assert (forecast(plan, COST, done).trials, forecast(plan, COST, done).steps) == (3, 60)
    everything = [Outcome(t, "FINISHED", "", 20, 60.0, steps=20) for t in plan.trials]
    nothing = forecast(plan, COST, everything)
    assert (nothing.trials, nothing.steps, nothing.wall_seconds, nothing.disk) == (0, 0, 0, 0)
    assert spent(plan, everything, 65, before=20).startswith(
        "took 1 min 05 s: 60 steps; in all commands 80 of the 80 (100.0%)"
    )


def test_measured_cost_of_a_tiny_encoder(
    tiny_models: dict[str, Path],
    texts: Path,
    tmp_path: Path,
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        f'[model]\nname = "{tiny_models["bert"]}"\n[projector]\nwidth = 64\n'
        "[optim]\nbatch_size = 8\nmax_steps = 40\n"
        f'[data]\ncorpus = "{texts / "corpus.txt"}"\ndev = "{texts / "pairs.tsv"}"\n'
    )
    inputs = prepare(from_toml(recipe))
    cost = measure(inputs, threads=1)
    weights = (tiny_models["bert"] / "model.safetensors").stat().st_size
    assert 0 < cost.step < 1
    assert 0 < cost.evaluation < 5
    assert cost.model == weights
    assert cost.checkpoint == 3 * (weights + 2 * 4 * 64 * 64)
    assert [score.key for score in cost.untrained] == ["dev.pairs.spearman_all"]


def test_needs_of_the_papers_grid_follow_from_the_sizes_of_bert() -> None:
    """Operations of a step by another count: 6 times weights times tokens, layer by layer."""
    tokens = 2 * 192 * 32
    layer = 768 * 768 * 4 + 768 * 3072 * 2  # query, key, value, output; up and down
    head = 768 * 4096 + 4096 * 4096 * 2
    step = 6 * (12 * layer * tokens + head * 2 * 192)
    gpu, time, disk = needs(Recipe(), 450)
    assert f"{step / 1e12:.1f} x 10^12" in time
    assert "5,208 steps" in time
    assert f"{450 * 5208 * step / 1e13 / 3600:,.0f} GPU-hours" in time
    assert "2.3 GB" in gpu
    assert "1.8 GB" in disk
    assert needs(Recipe(model=Model(name="bundled")), 450) == []


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("flags", "trials"),
    [([], 450), (["--seeds", "0", "1"], 900), (["--sampler", "tpe", "--max-trials", "9"], 9)],
)
def test_the_papers_plan_is_printed_where_neither_gpu_nor_data_are(
    flags: Sequence[str], trials: int, monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    def missing(recipe: Recipe) -> None:
        raise DataError("no senteval here")

    console = Console(record=True, width=200, file=StringIO())
    monkeypatch.setattr(command, "console", console)
    monkeypatch.setattr(command, "prepare", missing)
    assert coarse_grid.run(["--preset", "paper", "--dry-run", *flags]) == 0
    text = console.export_text()
    assert "450: alpha 0.1 0.2" in text
    assert "r_A 0% 10% 20% 30% 40%; r_B 10% 20% 30% 40% 50%" in text
    assert f"trials  {trials}" in text
    assert "not here   no senteval here" in text
    assert "it needs   a CUDA GPU" in text
    assert f"for {trials} trials" in text
    assert not Tracking().find()
    with pytest.raises(DataError):
        coarse_grid.run(["--preset", "paper"])
