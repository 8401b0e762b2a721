"""Encoding the seven STS tasks: each distinct sentence once and by length, against file order.

    python benchmarks/encode.py --data-dir data

The plain side takes the sentences as the files have them, repeated ones again, a fixed number at a
time, padded to the longest. Times are of encoding, tokeniser included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.sts import average, score_all
from scd_core.evaluation.suite import load_suite
from scd_core.evaluation.vectors import Encode, encode_once
from scd_core.models import model_folder
from scd_core.pooling import Pooling
from scd_core.training import default_device


@dataclass(frozen=True)
class Command:
    """Times both ways on real data and compares the scores."""

    data_dir: Path | None = None
    """Folder that holds senteval/; default $SCD_DATA_DIR, then the Hub."""
    model: str = "bundled"
    pooling: Pooling = "mean"
    threads: int = torch.get_num_threads()
    batch_size: int = 128
    """Sentences of a forward pass of the plain side."""


@torch.inference_mode()
def in_file_order(encoder: SentenceEncoder, size: int, sentences: Sequence[str]) -> np.ndarray:
    """(n, hidden) vectors of n sentences, ``size`` at a time."""
    rows = []
    for start in range(0, len(sentences), size):
        batch = encoder.tokenizer(
            list(sentences[start : start + size]),
            padding=True,
            truncation=True,
            max_length=encoder.limit,
            return_tensors="pt",
        ).to(encoder.device)
        rows.append(encoder(batch["input_ids"], batch["attention_mask"]).cpu().numpy())
    return np.concatenate(rows)


def main(command: Command) -> None:
    """Run both ways and print times, factor and scores."""
    torch.set_num_threads(command.threads)
    encoder = SentenceEncoder(model_folder(command.model), command.pooling).to(default_device())
    tasks = load_suite(("sts",), command.data_dir).pairs
    texts = [text for pairs in tasks for text in [*pairs.first, *pairs.second]]
    encoder.encode(texts[:500])  # warm
    ways = {
        "file order": partial(in_file_order, encoder, command.batch_size),
        "distinct, by length": partial(encode_once, encode=encoder.encode),
    }
    title = f"{command.model}, {command.pooling}, {command.threads} thread(s), {encoder.device}"
    table = Table(title=f"{title}: {len(texts)} sentences, {len(set(texts))} distinct")
    for name in ("", "seconds", "factor", *(pairs.name for pairs in tasks), "average"):
        table.add_column(name, justify="right")
    first = None
    for name, way in ways.items():
        begun = time.perf_counter()
        found = way(texts)
        spent = time.perf_counter() - begun
        first = first or spent
        look_up: Encode = found if callable(found) else _rows(texts, found)
        scores = score_all(tasks, look_up)
        shown = [score.text for score in scores] + [f"{average(scores):.4f}"]
        table.add_row(name, f"{spent:.1f}", f"{first / spent:.2f}", *shown)
    Console(width=120).print(table)


def _rows(texts: Sequence[str], vectors: np.ndarray) -> Encode:
    row = dict(zip(texts, vectors, strict=True))
    return lambda sentences: np.stack([row[text] for text in sentences])


if __name__ == "__main__":
    main(tyro.cli(Command))
