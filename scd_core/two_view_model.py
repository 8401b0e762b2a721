"""Encoder and projector as one module, and the precision in which it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from scd_core.encoder import SentenceEncoder
from scd_core.packed import can_pack
from scd_core.recipe import Precision

_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Views(NamedTuple):
    """What the objective takes: sentence vectors (batch, hidden), projections (batch, width)."""

    h_a: Tensor
    h_b: Tensor
    p_a: Tensor
    p_b: Tensor


class TwoViewModel(nn.Module):
    """Token ids of a batch to both views' vectors and projections."""

    def __init__(self, encoder: SentenceEncoder, projector: nn.Module) -> None:
        """The two parts keep their own state; this only joins them."""
        super().__init__()
        self.encoder, self.projector = encoder, projector

    def forward(self, rows: Sequence[Sequence[int]]) -> Views:
        """rows: token ids, special tokens included, not padded."""
        vectors = self.encoder.two_views(rows)
        return Views(*vectors.chunk(2), *self.projector(vectors).chunk(2))


def views_in(precision: Precision, model: TwoViewModel, rows: Sequence[Sequence[int]]) -> Views:
    """``model(rows)`` with matrix products of that precision; weights and gradients stay fp32.

    bf16 takes a copy of the layers' weights made once a step, and keeps what flows between layers
    in bf16 too; embeddings, whose gradients are long sums, and BatchNorm stay in fp32. Where a
    copy of an encoder's parts is not possible, and for fp16, it is torch's autocast.

    Raises:
        ValueError: "auto", which ``inputs.prepare`` resolves.
    """
    if precision not in _DTYPES:
        raise ValueError(
            f"optim.precision = {precision!r} is not resolved; take the recipe of prepare(recipe)"
        )
    if precision == "bf16" and can_pack(model.encoder.backbone):
        views: Views = functional_call(model, _halved(model), (rows,))
        return views
    dtype = _DTYPES[precision]
    with torch.autocast(model.encoder.device.type, dtype, enabled=dtype is not None):
        result: Views = model(rows)
    return result


def _halved(model: TwoViewModel) -> dict[str, Tensor]:
    parts = {
        "encoder.backbone.encoder": model.encoder.backbone.encoder,
        "projector": model.projector,
    }
    return {
        ".".join(filter(None, (part, name, key))): weight.to(torch.bfloat16)
        for part, root in parts.items()
        for name, module in root.named_modules()
        if isinstance(module, nn.Linear | nn.LayerNorm)
        for key, weight in module.named_parameters(recurse=False)
    }
