"""The rates asked for are the rates used, in both families, at every place; evaluation is stock."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    XLNetConfig,
    XLNetModel,
)

from scd_core.encoder import SentenceEncoder
from scd_core.two_view import TwoViewDropout, UnplacedDropoutError, set_rates

SENTENCES = ["the cat sat on the mat", "a dog ran", "the red dog sat on the blue road", "a cat"]


def two_views(folder: Path, r_a: float, r_b: float, seed: int) -> tuple[Tensor, Tensor]:
    """Both views' vectors (batch, hidden) of one training-mode pass."""
    encoder = SentenceEncoder(folder, "cls")
    set_rates(encoder.backbone, r_a, r_b)
    encoder.train()
    ids, mask = encoder.pad(encoder.tokenizer(SENTENCES)["input_ids"])
    torch.manual_seed(seed)
    with torch.no_grad():
        a, b = encoder(ids.repeat(2, 1), mask.repeat(2, 1)).chunk(2)
    return a, b


def test_a_rate_of_zero_leaves_its_view_without_dropout(tiny_model: Path) -> None:
    """Any dropout left at the config's 0.1 would make view A differ between draws."""
    (a1, b1), (a2, b2) = (two_views(tiny_model, 0.0, 0.5, seed) for seed in (1, 2))
    assert torch.equal(a1, a2)
    assert not torch.allclose(b1, b2)


def test_swapped_rates_swap_the_views(tiny_model: Path) -> None:
    (a1, b1), (a2, b2) = (two_views(tiny_model, 0.5, 0.0, seed) for seed in (1, 2))
    assert torch.equal(b1, b2)
    assert not torch.allclose(a1, a2)


@pytest.mark.parametrize("rates", [(0.05, 0.15), (0.1, 0.9)])
def test_share_of_zeros(tiny_model: Path, rates: tuple[float, float]) -> None:
    """At every dropout module, and on the attention probabilities, each view has its own share."""
    encoder = SentenceEncoder(tiny_model, "cls")
    set_rates(encoder.backbone, *rates)
    encoder.train()
    placed = [m for m in encoder.modules() if isinstance(m, TwoViewDropout)]
    assert len(placed) == 1 + 2 * 3  # embeddings; per layer attention, its output, feed-forward
    for module in placed:
        ones = torch.ones(2 * 64, 16, 32)
        for half, rate in zip(module(ones).chunk(2), rates, strict=True):
            assert (half == 0).float().mean().item() == pytest.approx(rate, abs=0.02)
            kept = 1 - round(rate * 2**16) / 2**16  # the rate at 16 bits, for an exact mean
            assert half[half != 0].unique().tolist() == pytest.approx([1 / kept], rel=1e-6)
    ids = torch.full((2 * 64, 16), 9)
    attention = encoder.backbone.encoder.layer[0].attention.self
    attention.query.weight.data.zero_()  # equal probabilities: 1/16 each before dropout
    attention.query.bias.data.zero_()
    attention.value.weight.data.zero_()
    attention.value.bias.data.fill_(1.0)  # so each output is the share of probability kept
    kept: list[Tensor] = []
    attention.register_forward_hook(lambda m, i, out: kept.append(out[0]))
    encoder(ids, torch.ones_like(ids))
    for half, rate in zip(kept[0].chunk(2), rates, strict=True):
        zeros = 1 - half * (1 - rate)  # per head and query, of 16 probabilities
        assert zeros.mean().item() == pytest.approx(rate, abs=0.02)
        assert zeros.std().item() == pytest.approx((rate * (1 - rate) / 16) ** 0.5, rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kept_values_are_scaled_in_fp32(dtype: torch.dtype) -> None:
    """1 / 0.85 is 1.1765; rounded to bf16 it would be 1.1797, a bias of 0.3% in every layer."""
    x = torch.linspace(-3, 3, 2 * 4096, dtype=dtype).view(2, -1).requires_grad_()
    dropout = TwoViewDropout(0.05, 0.15).train()
    y = dropout(x)
    y.sum().backward()
    assert x.grad is not None
    assert y.dtype == x.grad.dtype == dtype
    for half, out, grad, rate in zip(x, y, x.grad, dropout.rates, strict=True):
        kept = grad != 0
        scale = 1 / (1 - round(rate * 2**16) / 2**16)
        assert torch.equal(out[kept], (half[kept].float() * scale).to(dtype))
        assert (out[~kept] == 0).all()
        torch.testing.assert_close(grad[kept].float(), torch.full_like(grad[kept], scale).float())
        assert (~kept).float().mean().item() == pytest.approx(rate, abs=0.02)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.065, 0.155, 0.24, 0.9, 0.99999])
def test_rates_are_kept_to_16_bits(rate: float) -> None:
    """The share of zeros of a million draws is the rate, and its inverse the scale of the rest."""
    torch.manual_seed(0)
    y = TwoViewDropout(rate, rate).train()(torch.ones(2, 500_000))
    deviation = (rate * (1 - rate) / 1e6) ** 0.5
    assert (y == 0).double().mean().item() == pytest.approx(rate, abs=5 * deviation + 2**-16)
    if rate < 0.99:
        (scale,) = y[y != 0].unique().tolist()
        assert 1 - 1 / scale == pytest.approx(rate, abs=1e-5)


def test_masks_have_no_pattern() -> None:
    """Neighbours, rows and the four places that share a random word are independent."""
    torch.manual_seed(0)
    dropped = (TwoViewDropout(0.3, 0.3).train()(torch.ones(2, 512, 512)) == 0).double() - 0.3
    for lag in (1, 2, 3, 4, 512):
        a, b = dropped.flatten()[:-lag], dropped.flatten()[lag:]
        assert abs((a * b).mean().item()) < 5 * 0.21 / len(a) ** 0.5
    assert abs((dropped[0] * dropped[1]).mean().item()) < 5 * 0.21 / 512
    for place in range(4):
        share = dropped.flatten()[place::4].mean().item()
        assert abs(share) < 5 * 0.46 / (512 * 512 / 2) ** 0.5


def test_two_rates_one_after_another(tiny_model: Path) -> None:
    """A second encoder in the process, or a second call, uses its own rates."""
    first, second = (SentenceEncoder(tiny_model, "cls") for _ in range(2))
    set_rates(first.backbone, 0.1, 0.2)
    set_rates(second.backbone, 0.3, 0.4)
    set_rates(first.backbone, 0.5, 0.6)
    for encoder, rates in ((first, (0.5, 0.6)), (second, (0.3, 0.4))):
        found = {m.rates for m in encoder.modules() if isinstance(m, TwoViewDropout)}
        assert found == {rates}


def test_rows_of_a_view_do_not_share_masks(tiny_model: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "cls")
    set_rates(encoder.backbone, 0.3, 0.5)
    encoder.train()
    ids = torch.full((8, 5), 9)
    vectors = encoder(ids, torch.ones_like(ids))
    assert len({tuple(v.tolist()) for v in vectors}) == 8


def test_evaluation_is_the_stock_model(tiny_model: Path) -> None:
    """Bit-identical twice, equal to the stock model, with padding; training dropout comes back."""
    encoder = SentenceEncoder(tiny_model, "cls")
    set_rates(encoder.backbone, 0.3, 0.5)
    encoder.train()
    optimizer = torch.optim.AdamW(encoder.parameters(), 1e-3)
    ids, mask = encoder.pad(encoder.tokenizer(SENTENCES)["input_ids"])
    for _ in range(2):
        a, b = encoder(ids.repeat(2, 1), mask.repeat(2, 1)).chunk(2)
        (a * b).sum().backward()
        optimizer.step()
    first, second = encoder.encode(SENTENCES), encoder.encode(SENTENCES)
    assert (first == second).all()
    stock = AutoModel.from_pretrained(tiny_model, add_pooling_layer=False)
    stock.load_state_dict(encoder.backbone.state_dict())
    with torch.no_grad():
        expected = stock.eval()(ids, attention_mask=mask).last_hidden_state[:, 0]
    torch.testing.assert_close(torch.from_numpy(first), expected, atol=1e-5, rtol=0)
    assert encoder.training
    draws = [encoder(ids.repeat(2, 1), mask.repeat(2, 1)) for _ in range(2)]
    assert not torch.allclose(*draws)


def test_padding_is_not_attended_to_in_training(tiny_model: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "cls")
    set_rates(encoder.backbone, 0.0, 1e-9)
    encoder.train()
    ids, mask = encoder.pad(encoder.tokenizer(SENTENCES)["input_ids"])
    padded = encoder(ids.repeat(2, 1), mask.repeat(2, 1))[: len(SENTENCES)]
    for row, sentence in zip(padded, SENTENCES, strict=True):
        alone, ones = encoder.pad(encoder.tokenizer([sentence])["input_ids"])
        torch.testing.assert_close(
            row, encoder(alone.repeat(2, 1), ones.repeat(2, 1))[0], atol=1e-5, rtol=0
        )


def test_an_odd_batch_is_refused(tiny_model: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "cls")
    set_rates(encoder.backbone, 0.1, 0.2)
    encoder.train()
    ids = torch.full((3, 4), 9)
    with pytest.raises(ValueError, match="even number of rows"):
        encoder(ids, torch.ones_like(ids))


def bert() -> BertModel:
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    return BertModel(config, add_pooling_layer=False)


class OwnDropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.strength = rate

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.strength, self.training)


class FloatRate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout_rate = 0.2

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_dropout_that_cannot_be_placed_is_refused_by_name() -> None:
    kinds: dict[str, nn.Module] = {
        "encoder.layer.1.output.dropout (AlphaDropout)": nn.AlphaDropout(0.1),
        "encoder.layer.1.output.dropout (OwnDropout)": OwnDropout(0.1),
        "encoder.layer.1.output.dropout.dropout_rate = 0.2": FloatRate(),
    }
    for name, module in kinds.items():
        model = bert()
        model.encoder.layer[1].output.dropout = module
        with pytest.raises(UnplacedDropoutError) as error:
            set_rates(model, 0.1, 0.2)
        assert name in str(error.value)


def test_hidden_randomness_is_refused() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x) if self.training else x

    model = bert()
    model.encoder.layer[0].output.LayerNorm = Noise()
    with pytest.raises(UnplacedDropoutError, match="two views apart"):
        set_rates(model, 0.1, 0.2)


def test_dropout_over_another_axis_is_refused() -> None:
    """XLNet's tensors are (seq, batch, ...): halves of their rows are not the views."""
    config = XLNetConfig(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64)
    with pytest.raises(UnplacedDropoutError, match="XLNetModel"):
        set_rates(XLNetModel(config), 0.1, 0.2)


def test_gradient_checkpointing_is_refused() -> None:
    model = bert()
    model.gradient_checkpointing_enable()
    with pytest.raises(UnplacedDropoutError, match="checkpointing"):
        set_rates(model, 0.1, 0.2)


def test_another_family_with_plain_dropout_modules_works_or_is_refused() -> None:
    """DistilBERT keeps its attention rate in a dropout module: both rates reach it."""
    config = DistilBertConfig(vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    model = DistilBertModel(config)
    set_rates(model, 0.0, 0.5)
    model.train()
    ids = torch.full((8, 5), 9)
    outputs = [model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state for _ in range(2)]
    assert torch.equal(outputs[0][:4], outputs[1][:4])
    assert not torch.allclose(outputs[0][4:], outputs[1][4:])
