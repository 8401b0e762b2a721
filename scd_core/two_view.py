"""Two dropout rates in one forward pass over a stock Hugging Face encoder.

A batch of two views is view A's rows followed by view B's. Every dropout module of the encoder is
replaced by one that applies r_A to the first half and r_B to the second, and attention dropout goes
through an attention function registered under the project's name. Hidden, attention-probability
and embedding dropout all take part (section 2; released-code row 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from scd_core.packed import Packing

ATTENTION = "scd_two_view"
_LEVELS = 1 << 16
"""A mask compares 16 random bits with a threshold, so rates are kept to 1 / 2**17 = 7.6e-6."""


class UnplacedDropoutError(ValueError):
    """An encoder has a dropout whose two rates cannot be set; the message names it."""


class TwoViewDropout(nn.Module):
    """Dropout at one rate for the first half of the rows and another for the second.

    The identity in evaluation mode. One draw of random bits makes the mask of the whole tensor.
    What is kept is multiplied in fp32, whatever the tensor's type, by the inverse of the share kept
    at 16 bits, so that the mean is exact. ``p`` is an impossible rate on purpose: stock code that
    would apply one rate to both views must fail rather than run.
    """

    p = -1.0

    def __init__(self, r_a: float, r_b: float) -> None:
        """r_a, r_b: rates in [0, 1) for the first and the second half."""
        super().__init__()
        self.rates = (r_a, r_b)

    def forward(self, x: Tensor) -> Tensor:
        """x: (2 * batch, ...). Raises ValueError where the rows are not two equal halves."""
        if not self.training:
            return x
        levels = (min(round(rate * _LEVELS), _LEVELS - 1) for rate in self.rates)
        dropped: Tensor = _Dropout.apply(x, *levels)
        return dropped

    def extra_repr(self) -> str:
        """The two rates, for ``print(model)``."""
        return f"r_a={self.rates[0]}, r_b={self.rates[1]}"


class _Dropout(torch.autograd.Function):
    """x, and of 2**16 values how many are dropped in each half."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *levels: int) -> Tensor:
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
        bits = words.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)
        # 0 and 1 are exact in any type. A byte each is a quarter of an fp32 tensor to keep, and as
        # fast; beside 16-bit tensors it takes three times as long to multiply by as 16 bits do.
        kind = torch.bool if x.dtype == torch.float32 else torch.bfloat16
        keep = torch.empty(x.shape, dtype=kind, device=x.device)
        for half, kept, level in zip(_halves(bits), _halves(keep), levels, strict=True):
            torch.ge(half, level - _LEVELS // 2, out=kept)
        ctx.save_for_backward(keep)
        ctx.levels = levels
        return _masked(x, keep, levels)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return _masked(grads[0], keep, ctx.levels), None, None


def _masked(x: Tensor, keep: Tensor, levels: tuple[int, ...]) -> Tensor:
    result, zero = torch.empty_like(x, memory_format=torch.contiguous_format), x.new_zeros(())
    for out, half, kept, level in zip(
        _halves(result), _halves(x), _halves(keep), levels, strict=True
    ):
        scale = _LEVELS / (_LEVELS - level)
        torch.addcmul(zero, half, kept.to(x.dtype), value=scale, out=out)
    return result


def two_view_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    packing: Packing | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention, in training with each half's own dropout on the probabilities.

    query, key, value: (2 * batch, heads, seq, head); attention_mask: (2 * batch, 1, seq, seq) or
    None. Returns (2 * batch, seq, heads, head). With ``packing`` they are (2, heads, tokens, head),
    the mask is the packing's, and (2, tokens, heads, head) comes back. The rates come from the
    module's own ``TwoViewDropout``, never from ``dropout`` or a config.

    Raises:
        UnplacedDropoutError: the module asks for a dropout but holds it elsewhere.
    """
    if packing is None:
        return attend(module, query, key, value, attention_mask, dropout, **kwargs), None
    query, key, value = (
        packing.unpack(t.transpose(1, 2)).transpose(1, 2) for t in (query, key, value)
    )
    return packing.pack(attend(module, query, key, value, packing.mask, dropout, **kwargs)), None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    **kwargs: Any,
) -> Tensor:
    """(2 * batch, queries, heads, head) of (2 * batch, heads, queries or seq, head).

    mask: True (or 0, to be added) where there is a token. Otherwise as ``two_view_attention``.
    """
    inputs = (query, key, value, mask)
    if not module.training or dropout == 0.0:
        return sdpa_attention_forward(module, *inputs, dropout=0.0, **kwargs)[0]
    holder = getattr(module, "dropout", None)
    if not isinstance(holder, TwoViewDropout):
        raise UnplacedDropoutError(
            f"{type(module).__name__} applies attention dropout {dropout} that is not in its "
            "`dropout` module, so its two rates cannot be set; use a BERT or RoBERTa encoder"
        )
    if query.is_cuda:  # the fused kernels draw masks of their own, at one rate a call
        halves = zip(*((None, None) if t is None else _halves(t) for t in inputs), strict=True)
        outputs = [
            sdpa_attention_forward(module, *half, dropout=rate, **kwargs)[0]
            for half, rate in zip(halves, holder.rates, strict=True)
        ]
        return torch.cat(outputs)
    scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
    if mask is None:
        mask = query.new_zeros(())
    elif mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
    scores = torch.add(mask, query @ key.transpose(-1, -2), alpha=scaling)
    return (holder(scores.softmax(-1)) @ value).transpose(1, 2)


# The mask must be registered under the same name: without it, padding would be attended to.
AttentionInterface.register(ATTENTION, two_view_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def set_rates(backbone: PreTrainedModel, r_a: float, r_b: float) -> None:
    """Make every dropout of ``backbone`` a two-view dropout with these rates, in place.

    May be called again with other rates. In evaluation mode the encoder stays the stock one.

    Raises:
        UnplacedDropoutError: some dropout cannot be accounted for, named in the message: a dropout
            module of another kind, a rate kept as a number, or views that turn out mixed in a
            trial pass.
    """
    _refuse_unplaced(backbone)
    for parent in list(backbone.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout | TwoViewDropout):
                setattr(parent, name, TwoViewDropout(0.0, 0.0).train(child.training))
    backbone.set_attn_implementation(ATTENTION)
    _refuse_mixed_views(backbone)
    _assign(backbone, r_a, r_b)


def set_rate(backbone: PreTrainedModel, rate: float) -> None:
    """Give every dropout of a stock ``backbone`` this one rate, in place.

    Raises:
        UnplacedDropoutError: some dropout cannot be accounted for, or has two rates already.
    """
    _refuse_unplaced(backbone)
    for module in backbone.modules():
        if isinstance(module, TwoViewDropout):
            raise UnplacedDropoutError("the encoder has two-view dropout; load it again")
        if isinstance(module, nn.Dropout):
            module.p = rate


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    if x.shape[0] % 2:
        raise ValueError(
            f"two views need an even number of rows, view A's and then view B's; found {x.shape[0]}"
        )
    a, b = x.chunk(2)
    return a, b


def _refuse_unplaced(backbone: PreTrainedModel) -> None:
    found = []
    for name, module in backbone.named_modules():
        known = type(module) in (nn.Dropout, TwoViewDropout)
        if "drop" in type(module).__name__.lower() and not known:
            found.append(f"{name} ({type(module).__name__})")
        if not known:
            found += [
                f"{name}.{key} = {value}".lstrip(".")
                for key, value in vars(module).items()
                if "drop" in key and isinstance(value, float) and value > 0
            ]
    if any(getattr(module, "gradient_checkpointing", False) for module in backbone.modules()):
        found.append("gradient checkpointing, which would draw each mask twice")
    if found:
        raise UnplacedDropoutError(
            f"{type(backbone).__name__} has dropout that cannot take two rates: "
            f"{', '.join(found[:5])}{' ...' if len(found) > 5 else ''}; "
            "use a BERT or RoBERTa encoder, or set that rate to 0 in its config.json"
        )


def _refuse_mixed_views(backbone: PreTrainedModel) -> None:
    """A view without dropout must be what evaluation computes, and the other must not."""
    ids = torch.randint(
        backbone.config.vocab_size, (4, 8), generator=torch.Generator().manual_seed(0)
    )
    ids = ids.repeat(2, 1).to(backbone.device)

    def states(train: bool) -> tuple[Tensor, Tensor]:
        mask = torch.ones_like(ids)
        return _halves(backbone.train(train)(ids, attention_mask=mask).last_hidden_state)

    was_training = backbone.training
    try:
        with torch.no_grad(), torch.random.fork_rng():
            expected = states(train=False)
            apart = True
            for rates in ((0.0, 0.5), (0.5, 0.0)):
                _assign(backbone, *rates)
                for rate, found, stock in zip(rates, states(train=True), expected, strict=True):
                    apart &= torch.allclose(found, stock, atol=1e-5) == (rate == 0)
    except (ValueError, TypeError, IndexError) as error:  # e.g. it met the impossible rate
        raise UnplacedDropoutError(
            f"{type(backbone).__name__} applies a dropout of its own, or takes other inputs than "
            f"BERT: {error}; use a BERT or RoBERTa encoder"
        ) from error
    finally:
        backbone.train(was_training)
    if not apart:
        raise UnplacedDropoutError(
            f"{type(backbone).__name__} does not keep two views apart: with one rate at 0, that "
            "view is still random or the other is not, so it has a dropout that cannot be found "
            "or one over other axes; use a BERT or RoBERTa encoder"
        )


def _assign(backbone: PreTrainedModel, r_a: float, r_b: float) -> None:
    for module in backbone.modules():
        if isinstance(module, TwoViewDropout):
            module.rates = (r_a, r_b)
