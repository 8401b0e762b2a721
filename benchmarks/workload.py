"""What ``step.py`` times: shapes of published encoders, batches, and their operations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from scd_core.corpus import read_sentences
from scd_core.models import BUNDLED, model_folder

BERT, ROBERTA = (BertModel, BertConfig), (RobertaModel, RobertaConfig)
TINY = {
    "vocab_size": 1000,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
}
SHAPES: dict[str, tuple[Any, dict[str, int]]] = {
    "bundled": (BERT, {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}),
    "bert-base": (BERT, {}),
    "roberta-base": (
        ROBERTA,
        {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "tiny": (BERT, TINY),
    "tiny-roberta": (ROBERTA, TINY | {"max_position_embeddings": 66, "type_vocab_size": 1}),
}
# Sentences with 3, 4 ... 32 tokens, of 999: 11,913 sentences of Wikipedia in BERT's word pieces,
# cut at 32 tokens; 21.9 on average. For machines without the sentences.
LENGTHS = (
    *(3, 13, 20, 24, 23, 21, 19, 21, 21, 23, 25, 28, 31, 29, 32, 32, 30, 31, 33, 31, 34, 30, 28),
    *(27, 25, 25, 26, 21, 22, 271),
)


@dataclass(frozen=True)
class Work:
    """A batch, for both ways."""

    rows: list[list[int]]
    ids: Tensor
    mask: Tensor


def backbone_of(shape: str) -> PreTrainedModel:
    """The encoder with random weights, the same every time."""
    (model, config), settings = SHAPES[shape]
    torch.manual_seed(0)
    return model(config(**settings), add_pooling_layer=False)


def batches(
    vocabulary: int, batch: int, max_length: int, corpus: Path | None, device: torch.device
) -> list[Work]:
    """Four batches, with lengths of sentences of ``corpus`` or of the same distribution."""
    count = 4
    draw = np.random.default_rng(0)
    if corpus:
        sentences, _ = read_sentences(corpus)
        chosen = draw.choice(len(sentences), count * batch, replace=False)
        tokenizer = AutoTokenizer.from_pretrained(model_folder(BUNDLED))
        tokenised = tokenizer(
            [sentences[i] for i in chosen], truncation=True, max_length=max_length
        )
        lengths = np.array([len(row) for row in tokenised["input_ids"]])
    else:
        shares = np.array(LENGTHS) / sum(LENGTHS)
        lengths = 3 + draw.choice(len(LENGTHS), count * batch, p=shares)
    lengths = np.minimum(lengths, max_length).reshape(count, -1)
    works = []
    for of_batch in lengths:
        rows = [draw.integers(5, vocabulary, n).tolist() for n in of_batch]
        mask = torch.arange(of_batch.max()) < torch.from_numpy(of_batch)[:, None]
        ids = torch.zeros(mask.shape, dtype=torch.long)
        ids[mask] = torch.tensor([i for row in rows for i in row])
        works.append(Work(rows, ids.to(device), mask.long().to(device)))
    return works


def operations(config: Any, width: int, work: Work, whole: bool) -> float:
    """Of a step in matrix products, a product and its sum being two, backward twice forward.

    Without ``whole``, the last layer's queries and what follows are first tokens'.
    """
    hidden, inner, layers = (
        config.hidden_size,
        config.intermediate_size,
        config.num_hidden_layers,
    )
    lengths = np.array([len(row) for row in work.rows])
    tokens, rows = 2 * lengths.sum(), 2 * len(lengths)

    def layer(outputs: float, pairs: float) -> float:
        keys = 2 * tokens * 2 * hidden**2
        return keys + outputs * (4 * hidden**2 + 4 * hidden * inner) + 4 * pairs * hidden

    every = layer(tokens, 2 * (lengths**2).sum())
    last = every if whole else layer(rows, tokens)
    projector = 2 * rows * (hidden * width + 2 * width**2)
    return float(3 * ((layers - 1) * every + last + projector))
