"""Both views of a batch without padding: a row of real tokens a view, through the stock modules.

No padding goes through a linear layer, LayerNorm, GELU or dropout. Only attention sees sentences
side by side, padded to the longest: grouping them by length was slower.
In the last layer [CLS] pooling takes no more than it needs: every key and value, and one query a
sentence. All of it is exact; the padded pass, ``SentenceEncoder.forward``, is the reference.

Axes: (2, tokens, hidden): view A and view B, the sentences of a view one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertModel, PreTrainedModel, RobertaModel

from scd_core.two_view import attend


@dataclass(frozen=True)
class Packing:
    """Where the tokens of a batch lie, packed and padded; the same in both views."""

    ids: Tensor
    """(tokens,) token ids."""
    positions: Tensor
    """(tokens,) places of the tokens in their sentences, from 0."""
    slots: Tensor
    """(tokens,) places of the tokens among the (batch * longest) of the padded form."""
    firsts: Tensor
    """(batch,) places of the first tokens among the packed."""
    lengths: Tensor
    """(batch,) tokens of the sentences."""
    mask: Tensor | None
    """(2 * batch, 1, 1, longest), True at tokens; None where nothing is padded."""
    longest: int
    """Tokens of the longest sentence."""

    @staticmethod
    def of(rows: Sequence[Sequence[int]], device: torch.device) -> Packing:
        """The packing of a batch of token ids, on ``device``, which is not waited for."""
        lengths = np.array([len(row) for row in rows])
        batch, longest, tokens = len(rows), int(lengths.max()), int(lengths.sum())
        firsts = np.cumsum(lengths) - lengths
        positions = np.arange(tokens) - np.repeat(firsts, lengths)
        slots = positions + np.repeat(np.arange(batch) * longest, lengths)
        parts = np.concatenate([*rows, positions, slots, firsts, lengths])
        joined = torch.from_numpy(parts.astype(np.int64))
        if device.type == "cuda":
            joined = joined.pin_memory().to(device, non_blocking=True)
        ids, places, slot, first, length = joined.split([tokens] * 3 + [batch] * 2)
        real = torch.arange(longest, device=device) < length.repeat(2).view(-1, 1, 1, 1)
        mask = None if tokens == batch * longest else real
        return Packing(ids, places, slot, first, length, mask, longest)

    def unpack(self, x: Tensor) -> Tensor:
        """(2, tokens, ...) to (2 * batch, longest, ...), 0 at padding."""
        room = len(self.firsts) * self.longest
        return _Spread.apply(x, self.slots, room).view(-1, self.longest, *x.shape[2:])

    def pack(self, x: Tensor) -> Tensor:
        """(2 * batch, longest, ...) to (2, tokens, ...); the inverse of ``unpack``."""
        packed: Tensor = _Collect.apply(x.reshape(2, -1, *x.shape[2:]), self.slots)
        return packed


# Each is the other's derivative. Autograd's own adds up, since an index may repeat; these do not.
class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor, room: int) -> Tensor:
        ctx.save_for_backward(slots)
        return x.new_zeros(2, room, *x.shape[2:]).index_copy_(1, slots, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0].index_select(1, *ctx.saved_tensors), None, None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.room = x.shape[1]
        return x.index_select(1, slots)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (slots,), grad = ctx.saved_tensors, grads[0]
        return grad.new_zeros(2, ctx.room, *grad.shape[2:]).index_copy_(1, slots, grad), None


def can_pack(backbone: PreTrainedModel) -> bool:
    """Whether the encoder is of a family whose parts are known here: BERT and RoBERTa."""
    return isinstance(backbone, BertModel | RobertaModel) and not backbone.config.is_decoder


def encode_packed(backbone: PreTrainedModel, packing: Packing, pooling: str) -> Tensor:
    """Sentence vectors (2 * batch, hidden) of both views, in the precision of the layers' weights.

    Embeddings stay in their own precision: the gradient of a frequent token is a sum over many.

    Args:
        backbone: an encoder that ``can_pack``, its rates set (``two_view.set_rates``).
        packing: the batch.
        pooling: "cls" or "mean", as ``SentenceEncoder``.
    """
    table = backbone.embeddings.position_embeddings
    # RoBERTa's positions start behind its padding id.
    offset = 0 if table.padding_idx is None else table.padding_idx + 1
    states = backbone.embeddings(
        input_ids=packing.ids.expand(2, -1),
        position_ids=(packing.positions + offset).expand(2, -1),
    )
    *layers, last = backbone.encoder.layer
    states = states.to(last.attention.self.query.weight.dtype)
    for layer in layers:
        states = layer(states, packing=packing)
    if pooling == "cls":
        return _first_tokens(last, states, packing).flatten(0, 1)
    states = packing.unpack(last(states, packing=packing))
    return states.float().sum(1) / packing.lengths.repeat(2).unsqueeze(1)


def _first_tokens(layer: Any, states: Tensor, packing: Packing) -> Tensor:
    """The layer's output (2, batch, hidden) at the first tokens, of its whole input."""
    attention = layer.attention.self
    first = states.index_select(1, packing.firsts)

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, attention.attention_head_size))

    query = heads(attention.query(first)).flatten(0, 1).unsqueeze(2)
    key, value = (
        packing.unpack(heads(project(states))).transpose(1, 2)
        for project in (attention.key, attention.value)
    )
    context = attend(
        attention, query, key, value, packing.mask, attention.dropout.p, scaling=attention.scaling
    )
    attended = layer.attention.output(context.reshape(first.shape), first)
    output: Tensor = layer.feed_forward_chunk(attended)
    return output
