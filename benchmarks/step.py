"""The training step beside one written plainly: time, share of the machine's peak, memory, profile.

    python benchmarks/step.py --corpus sentences.txt --threads 2

Shapes of published encoders with random weights, since a step's cost is its shape; token ids are
random, lengths are those of real sentences. All ways take the same batches in turn, so that a
machine that is not idle slows all of them. Peaks are measured in the same run.

Shares of the peak are of the operations of the whole model on real tokens (column "model"), and of
those really done (column "done"): of the last layer our step leaves out what is not for the first
tokens, which is all that [CLS] pooling takes.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from plain import PlainStep
from plain import projector as plain_projector
from profiling import profile_of
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import PreTrainedModel
from workload import Work, backbone_of, batches, operations

from scd_core.objectives import scd
from scd_core.packed import Packing, encode_packed
from scd_core.projector import build_projector
from scd_core.recipe import Recipe
from scd_core.settings import Objective, Optim, Precision, Projector, Views
from scd_core.two_view import set_rates
from scd_core.two_view_model import TwoViewModel, views_in
from search.space import COARSE

PAPER_SENTENCES = 1_000_000


@dataclass(frozen=True)
class Command:
    """Time both ways, fp32 and bf16, shape after shape."""

    shapes: tuple[str, ...] = ("bundled", "bert-base", "roberta-base")
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    device: str = "cpu"
    batch: int = 192
    max_length: int = 32
    width: int = 4096
    """Of the projector, three layers."""
    rounds: int = 7
    """Steps of each way, after one that is not counted."""
    seconds: float = 300.0
    """No further round of a shape begins after this; at least 3 are run."""
    threads: int = 2
    corpus: Path | None = None
    """Sentences whose lengths are taken, by the bundled encoder's tokenizer; default: lengths of
    the same distribution."""
    memory: bool = True
    """Also peak memory, each way in a process of its own."""
    profile: bool = True
    """Also where the time of a step goes."""


def main(command: Command) -> None:
    """Print a table a shape, as each is measured."""
    console = Console(width=118)
    torch.set_num_threads(command.threads)
    device = torch.device(command.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{command.threads} threads"
    console.print(f"torch {torch.__version__}, {device.type}, {name}")
    peaks = {precision: _peak(precision, device) for precision in command.precisions}
    for precision, peak in peaks.items():
        console.print(f"peak of matrix products, {precision}: {peak / 1e9:,.0f} GFLOP/s")
    for shape in command.shapes:
        _measure(command, shape, device, peaks, console)


def _measure(
    command: Command, shape: str, device: torch.device, peaks: dict[Precision, float], out: Console
) -> None:
    ways = ("plain", *command.precisions)
    # Before this process holds anything: what it has freed may still be its own.
    memory = {way: _alone(command, shape, way) for way in ways} if command.memory else {}
    works = _batches(command, shape, device)
    steps = _steps(command, shape, ways, device)
    times: dict[str, list[float]] = {way: [] for way in ways}
    losses: dict[str, list[float]] = {way: [] for way in ways}
    started = time.perf_counter()
    for number in range(command.rounds + 1):
        work = works[number % len(works)]
        for way in ways:
            seconds, loss = _timed(steps[way], work, device)
            times[way] += [seconds] if number else []
            losses[way].append(loss)
        if number >= 3 and time.perf_counter() - started > command.seconds:
            break
    # Every batch costs another number of operations: those of the batches that were timed.
    timed = [works[n % len(works)] for n in range(1, len(times["plain"]) + 1)]
    config = backbone_of(shape).config
    model, done = (
        statistics.fmean(operations(config, command.width, work, whole) for work in timed)
        for whole in (True, False)
    )
    tokens = statistics.fmean(2 * sum(map(len, work.rows)) for work in timed)
    medians = {way: statistics.median(found) for way, found in times.items()}
    profiles = {}
    if command.profile:
        profiles = {way: profile_of(lambda way=way: steps[way](works[0]), device) for way in ways}
    title = f"{shape}, batch {command.batch}, {tokens:,.0f} tokens of both views, "
    title += f"{model / 1e12:.3f} TFLOP a step ({done / 1e12:.3f} done), {len(timed)} rounds"
    table = Table(title=title, title_justify="left")
    columns = ("way", "s", "fastest", "times plain", "tokens/s", "model", "done", "GB", "x", "loss")
    for column in columns:
        table.add_column(column, justify="left" if column == "way" else "right")
    for way in ways:
        precision: Precision = "fp32" if way == "plain" else way  # type: ignore[assignment]
        rate = medians[way] * peaks.get(precision, float("nan"))
        table.add_row(
            way,
            f"{medians[way]:.4f}",
            f"{min(times[way]):.4f}",
            f"{medians['plain'] / medians[way]:.2f}",
            f"{tokens / medians[way]:,.0f}",
            f"{model / rate:.2f}",
            "" if way == "plain" else f"{done / rate:.2f}",
            f"{memory[way] / 1e9:.2f}" if memory else "",
            f"{memory[way] / memory['plain']:.2f}" if memory else "",
            f"{losses[way][0]:.3f} .. {losses[way][-1]:.3f}",
        )
    out.print(table)
    for way, shares in profiles.items():
        out.print(f"{way}: " + ", ".join(f"{k} {v:.1%}" for k, v in shares.items()))
    _extrapolate(command, medians, out)


def _extrapolate(command: Command, medians: dict[str, float], out: Console) -> None:
    steps = PAPER_SENTENCES // command.batch
    points = len(COARSE.points)
    for way, median in medians.items():
        hours = steps * median / 3600
        out.print(
            f"{way}: an epoch of {PAPER_SENTENCES:,} sentences, {steps:,} steps, {hours:.2f} h; "
            f"the coarse grid's {points} points, a whole epoch each, {points * hours:,.0f} h "
            "(without dev evaluations)"
        )


def _batches(command: Command, shape: str, device: torch.device) -> list[Work]:
    vocabulary = backbone_of(shape).config.vocab_size
    return batches(vocabulary, command.batch, command.max_length, command.corpus, device)


def _recipe(command: Command) -> Recipe:
    return Recipe(
        views=Views(0.05, 0.15),
        objective=Objective(),
        projector=Projector(width=command.width),
        optim=Optim(batch_size=command.batch, max_length=command.max_length),
    )


class RandomEncoder(nn.Module):
    """What ``TwoViewModel`` needs of an encoder, around a backbone that has no tokenizer."""

    def __init__(self, backbone: PreTrainedModel) -> None:
        super().__init__()
        self.backbone = backbone

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.device

    def two_views(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Sentence vectors (2 * batch, hidden)."""
        return encode_packed(self.backbone, Packing.of(rows, self.device), "cls")


class OurStep:
    """The step of ``scd_core.training``, less its bookkeeping."""

    def __init__(self, backbone: PreTrainedModel, projector: nn.Module, recipe: Recipe) -> None:
        set_rates(backbone, recipe.views.r_a, recipe.views.r_b)
        self.model = TwoViewModel(RandomEncoder(backbone), projector).train()  # type: ignore[arg-type]
        self.recipe, self.parameters = recipe, list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            self.parameters, recipe.optim.lr, weight_decay=0.0, fused=True
        )

    def __call__(self, rows: Sequence[Sequence[int]], precision: Precision) -> Tensor:
        """Train on the batch; the loss before."""
        loss = scd(*views_in(precision, self.model, rows), self.recipe.objective).loss
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.recipe.optim.clip_norm)
        self.optimizer.step()
        return loss.detach()


def _steps(
    command: Command, shape: str, ways: Sequence[str], device: torch.device
) -> dict[str, Callable[[Work], float]]:
    """A step of each way; fp32 and bf16 have weights of their own, so that losses compare."""
    recipe, steps = _recipe(command), {}
    for way in ways:
        backbone = backbone_of(shape).to(device).train()
        sizes = backbone.config.hidden_size, command.width, recipe.projector.layers
        if way == "plain":
            plain = PlainStep(backbone, plain_projector(*sizes).to(device), recipe)
            steps[way] = lambda work, plain=plain: plain(work.ids, work.mask)
        else:
            ours = OurStep(backbone, build_projector(sizes[0], recipe.projector).to(device), recipe)
            steps[way] = lambda work, ours=ours, way=way: ours(work.rows, way)
    return steps


def _peak(precision: Precision, device: torch.device) -> float:
    """Fastest square product, operations a second."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    size, best = (8192 if device.type == "cuda" else 2048), 0.0
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    for _ in range(12):
        _wait(device)
        start = time.perf_counter()
        a @ b
        _wait(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def _timed(step: Callable[[Work], Any], work: Work, device: torch.device) -> tuple[float, float]:
    torch.manual_seed(0)
    _wait(device)
    start = time.perf_counter()
    loss = step(work)
    _wait(device)
    return time.perf_counter() - start, float(loss)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _alone(command: Command, shape: str, way: str) -> float:
    """Peak memory of a process that does nothing but this way's steps, bytes."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_peak_memory, command, shape, way).result()


def _peak_memory(command: Command, shape: str, way: str) -> float:
    torch.set_num_threads(command.threads)
    device = torch.device(command.device)
    (step,) = _steps(command, shape, [way], device).values()
    for work in _batches(command, shape, device)[:2]:
        step(work)
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated())
    return _peak_resident()


def _peak_resident() -> float:
    """Bytes that this program has held at most."""
    status = Path("/proc/self/status")
    if status.is_file():  # ``ru_maxrss`` would begin with what the parent held when it started us
        held = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * float(held.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


if __name__ == "__main__":
    main(tyro.cli(Command))
