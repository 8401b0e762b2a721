"""The benchmark's plain step is an independent derivation: ours must compute the same."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scd_core.recipe import Recipe
from scd_core.settings import Optim, Projector, Views
from tests.conftest import CHECKOUT

FOLDER = CHECKOUT / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The benchmark's modules, which import each other as a script's neighbours."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("plain", "workload", "profiling", "step")
    modules = {name: importlib.import_module(name) for name in names}
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    return modules


@pytest.mark.parametrize("shape", ["tiny", "tiny-roberta"])
def test_our_step_is_the_plain_one(benchmark: dict[str, Any], shape: str) -> None:
    """Loss and every gradient, with dropout off: packed against padded, N x N against D x D."""
    workload, recipe = (
        benchmark["workload"],
        Recipe(views=Views(0.0, 1e-9), projector=Projector(width=64), optim=Optim(batch_size=12)),
    )
    (work, *_) = workload.batches(900, 12, 32, None, CPU)
    backbones = [workload.backbone_of(shape).train() for _ in range(2)]
    if shape == "tiny-roberta":
        work.ids[work.mask == 0] = backbones[0].config.pad_token_id
    hidden = backbones[0].config.hidden_size
    plain = benchmark["plain"].PlainStep(
        backbones[0], benchmark["plain"].projector(hidden, 64, 3), recipe
    )
    projector = benchmark["step"].build_projector(hidden, recipe.projector)
    # One has its BatchNorm inside a module of two views; the order of the weights is the same.
    with torch.no_grad():
        for mine, theirs in zip(projector.parameters(), plain.projector.parameters(), strict=True):
            mine.copy_(theirs)
    ours = benchmark["step"].OurStep(backbones[1], projector, recipe)
    loss = plain.loss(work.ids, work.mask)
    loss.backward()
    found = ours(work.rows, "fp32")  # its gradients are clipped by now
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.nn.utils.clip_grad_norm_(plain.parameters, recipe.optim.clip_norm)
    for mine, theirs in zip(ours.parameters, plain.parameters, strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-5, rtol=1e-3)


def test_operations_by_hand(benchmark: dict[str, Any]) -> None:
    """One layer, two tokens and one sentence of three: counted product by product."""
    workload = benchmark["workload"]
    config = workload.backbone_of("tiny").config
    config.num_hidden_layers, config.hidden_size, config.intermediate_size = 1, 4, 8
    work = workload.Work([[1, 2], [1, 2, 3]], torch.zeros(0), torch.zeros(0))
    tokens, sentences = 10, 4  # of both views
    products = 4 * tokens * 4 * 4 + 2 * tokens * 4 * 8  # q, k, v, output; in and out
    attention = 2 * (2 * 2 * 2 + 2 * 3 * 3) * 4  # scores and sums, both views
    projector = sentences * (4 * 16 + 2 * 16 * 16)
    whole = 3 * 2 * (products + attention + projector)
    assert workload.operations(config, 16, work, whole=True) == whole
    first = 2 * tokens * 4 * 4 + 2 * sentences * 4 * 4 + 2 * sentences * 4 * 8
    done = 3 * 2 * (first + 2 * tokens * 4 + projector)
    assert workload.operations(config, 16, work, whole=False) == done


def test_lengths_without_sentences_are_those_of_sentences(benchmark: dict[str, Any]) -> None:
    works = benchmark["workload"].batches(900, 1000, 32, None, CPU)
    lengths = np.array([len(row) for work in works for row in work.rows])
    assert lengths.mean() == pytest.approx(21.9, abs=0.5)
    assert (lengths.min(), lengths.max()) == (3, 32)
    for work in works:
        assert work.mask.sum(1).tolist() == [len(row) for row in work.rows]


def test_the_command(tmp_path: Path) -> None:
    flags = [
        "--shapes",
        "tiny",
        "--batch",
        "8",
        "--width",
        "32",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--seconds",
        "5",
    ]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "step.py"), *flags],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    for expected in ("plain", "fp32", "bf16", "matrix products", "steps"):
        assert expected in done.stdout


def test_the_gpu_script_without_a_gpu_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run(
        ["bash", str(FOLDER / "gpu.sh")],
        capture_output=True,
        text=True,
        env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert "no GPU is visible" in done.stderr
