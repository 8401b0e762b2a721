"""Encoder and projector as one module, and the precision in which it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from scd_core.encoder import SentenceEncoder
from scd_core.packed import can_pack
from scd_core.settings import Precision

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


def views_in(precision: Precision, model: nn.Module, rows: Sequence[Sequence[int]]) -> Any:
    """``model(rows)`` with matrix products of that precision; weights and gradients stay fp32.

    ``model`` encodes by ``model.encoder.two_views`` only; its other children get vectors.

    bf16 takes a copy of the layers' weights made once a step, and keeps what flows between layers
    in bf16 too; embeddings, whose gradients are long sums, and BatchNorm stay in fp32. Where a
    copy of an encoder's parts is not possible, and for fp16, it is torch's autocast.

    Raises:
        ValueError: "auto", which ``inputs.prepare`` resolves.
    """
    if precision == "bf16" and can_pack(_encoder(model).backbone):
        return functional_call(model, _halved(model), (rows,))
    return outputs_in(precision, model, rows)


def outputs_in(precision: Precision, model: nn.Module, rows: Sequence[Sequence[int]]) -> Any:
    """``model(rows)`` under torch's autocast, for a model of any kind with an ``encoder``.

    Raises:
        ValueError: "auto", which ``inputs.prepare`` resolves.
    """
    if precision not in _DTYPES:
        raise ValueError(
            f"optim.precision = {precision!r} is not resolved; take the recipe of prepare(recipe)"
        )
    dtype = _DTYPES[precision]
    with torch.autocast(_encoder(model).device.type, dtype, enabled=dtype is not None):
        return model(rows)


def _encoder(model: nn.Module) -> SentenceEncoder:
    return cast(SentenceEncoder, model.encoder)


def _halved(model: nn.Module) -> dict[str, Tensor]:
    parts = {name: child for name, child in model.named_children() if name != "encoder"}
    parts["encoder.backbone.encoder"] = _encoder(model).backbone.encoder
    return {
        ".".join(filter(None, (part, name, key))): weight.to(torch.bfloat16)
        for part, root in parts.items()
        for name, module in root.named_modules()
        if isinstance(module, nn.Linear | nn.LayerNorm)
        for key, weight in module.named_parameters(recurse=False)
    }
