"""Packed is padded: vectors and gradients equal, dropout the same in distribution, no padding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

from scd_core.encoder import SentenceEncoder
from scd_core.packed import Packing, can_pack, encode_packed
from scd_core.pooling import Pooling
from scd_core.projector import build_projector
from scd_core.settings import Projector
from scd_core.two_view import TwoViewDropout, set_rates
from scd_core.two_view_model import TwoViewModel, views_in

CPU = torch.device("cpu")
LENGTHS = {"mixed": (7, 3, 12, 3, 9), "equal": (6, 6, 6, 6), "one": (5,)}


def made_rows(encoder: SentenceEncoder, lengths: tuple[int, ...]) -> list[list[int]]:
    draw = np.random.default_rng(0)
    first = encoder.tokenizer.cls_token_id
    return [[first, *draw.integers(6, 18, length - 1).tolist()] for length in lengths]


def encoder_of(folder: Path, pooling: Pooling, r_a: float, r_b: float) -> SentenceEncoder:
    encoder = SentenceEncoder(folder, pooling)
    set_rates(encoder.backbone, r_a, r_b)
    return encoder.train()


def test_packing_by_hand() -> None:
    packing = Packing.of([[9, 8, 7], [6], [5, 4]], CPU)
    assert packing.ids.tolist() == [9, 8, 7, 6, 5, 4]
    assert packing.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packing.slots.tolist() == [0, 1, 2, 3, 6, 7]
    assert packing.firsts.tolist() == [0, 3, 4]
    assert packing.lengths.tolist() == [3, 1, 2]
    assert packing.mask is not None
    real = [[True, True, True], [True, False, False], [True, True, False]]
    assert packing.mask.view(6, 3).tolist() == real * 2
    x = torch.arange(12.0).view(2, 6, 1)
    padded = packing.unpack(x)
    assert padded.squeeze(2).tolist() == [
        [0, 1, 2],
        [3, 0, 0],
        [4, 5, 0],
        [6, 7, 8],
        [9, 0, 0],
        [10, 11, 0],
    ]
    assert torch.equal(packing.pack(padded), x)


def test_packing_is_differentiated_rightly() -> None:
    packing = Packing.of([[1, 1, 1], [1], [1, 1]], CPU)
    packed = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    padded = torch.randn(6, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(packing.unpack, packed)
    assert torch.autograd.gradcheck(packing.pack, padded)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "rates of 0"])
def test_without_dropout_packed_is_padded(
    tiny_model: Path, pooling: Pooling, lengths: tuple[int, ...], training: bool
) -> None:
    """To 1e-5: the vectors, and the gradient of every weight."""
    encoder = encoder_of(tiny_model, pooling, 0.0, 1e-9).train(training)
    rows = made_rows(encoder, lengths)
    ids, mask = encoder.pad(rows)
    weights = torch.randn(2 * len(rows), 32, generator=torch.Generator().manual_seed(1))
    found = []
    for way in (
        lambda: encoder.two_views(rows),
        lambda: encoder(ids.repeat(2, 1), mask.repeat(2, 1)),
    ):
        encoder.zero_grad()
        vectors = way()
        (vectors * weights).sum().backward()
        gradients = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
        found.append((vectors.detach(), gradients))
    (packed, packed_gradients), (padded, padded_gradients) = found
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=0)
    assert packed_gradients.keys() == padded_gradients.keys()
    for name, gradient in padded_gradients.items():
        torch.testing.assert_close(packed_gradients[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_no_padding_passes_a_layer(tiny_model: Path) -> None:
    """And of the last layer, only first tokens pass what comes behind its keys and values."""
    encoder = encoder_of(tiny_model, "cls", 0.05, 0.15)
    rows = made_rows(encoder, LENGTHS["mixed"])
    tokens, batch = sum(LENGTHS["mixed"]), len(rows)
    seen: dict[str, list[int]] = {}
    for name, module in encoder.backbone.named_modules():
        if isinstance(module, nn.Linear | nn.LayerNorm | TwoViewDropout):
            module.register_forward_hook(
                lambda m, i, out, name=name: seen.setdefault(name, []).append(out.shape[1])
            )
    encoder.two_views(rows)
    first, last = "encoder.layer.0.", "encoder.layer.1."
    for name, counts in seen.items():
        whole = not name.startswith(last) or name.endswith(("self.key", "self.value"))
        if not name.endswith("attention.self.dropout"):
            assert counts == [tokens if whole else batch], name
    assert {n.removeprefix(first) for n in seen if first in n} == {
        n.removeprefix(last) for n in seen if last in n
    }


@pytest.mark.parametrize("rates", [(0.05, 0.15), (0.1, 0.9)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_share_of_zeros_at_every_place(
    tiny_model: Path, rates: tuple[float, float], pooling: Pooling
) -> None:
    """Embedding, attention probabilities and hidden states, each view its own share: as padded."""
    encoder = encoder_of(tiny_model, pooling, *rates)
    rows = made_rows(encoder, (12, 5, 9, 3) * 30)
    zeros: dict[str, tuple[Tensor, Tensor]] = {}

    def count(name: str) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor], out: Tensor) -> None:
            # Probabilities at padding are 0 before.
            kept = [o[i != 0] for o, i in zip(out.chunk(2), inputs[0].chunk(2), strict=True)]
            zeros[name] = (kept[0] == 0, kept[1] == 0)

        return hook

    for name, module in encoder.backbone.named_modules():
        if isinstance(module, TwoViewDropout):
            module.register_forward_hook(count(name))
    torch.manual_seed(0)
    encoder.two_views(rows)
    assert len(zeros) == 1 + 2 * 3
    for name, views in zeros.items():
        for zero, rate in zip(views, rates, strict=True):
            deviation = (rate * (1 - rate) / zero.numel()) ** 0.5
            assert zero.double().mean().item() == pytest.approx(rate, abs=5 * deviation), name


def test_vectors_vary_as_padded_ones(tiny_model: Path) -> None:
    """Mean and deviation over draws are those of the padded way with torch's own numbers."""
    encoder = encoder_of(tiny_model, "cls", 0.1, 0.4)
    rows = made_rows(encoder, LENGTHS["mixed"])
    ids, mask = encoder.pad(rows * 400)
    torch.manual_seed(0)
    with torch.no_grad():
        packed = encoder.two_views(rows * 400)
        padded = encoder(ids.repeat(2, 1), mask.repeat(2, 1))
    a, b = (x.view(2, 400, len(rows), -1) for x in (packed, padded))
    error = (a.var(1) / 400 + b.var(1) / 400).sqrt()
    assert ((a.mean(1) - b.mean(1)) / error).square().mean().item() == pytest.approx(1, abs=0.35)
    assert (a.std(1) / b.std(1)).mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("rates", "same"), [((0.0, 0.5), 0), ((0.5, 0.0), 1)])
def test_a_rate_of_zero_leaves_its_view_without_dropout(
    tiny_model: Path, rates: tuple[float, float], same: int
) -> None:
    encoder = encoder_of(tiny_model, "cls", *rates)
    rows = made_rows(encoder, LENGTHS["mixed"])
    draws = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        draws.append(encoder.two_views(rows).chunk(2))
    assert torch.equal(draws[0][same], draws[1][same])
    assert not torch.allclose(draws[0][1 - same], draws[1][1 - same])


def test_sentences_do_not_share_masks(tiny_model: Path) -> None:
    encoder = encoder_of(tiny_model, "cls", 0.3, 0.5)
    vectors = encoder.two_views([[9] * 5] * 4)
    assert len({tuple(v.tolist()) for v in vectors}) == 8


def test_other_encoders_take_the_padded_way() -> None:
    config = DistilBertConfig(vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    assert not can_pack(DistilBertModel(config))
    decoder = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, is_decoder=True
    )
    assert not can_pack(BertModel(decoder))


def test_what_cannot_be_packed_is_padded(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of(tiny_model, "cls", 0.0, 1e-9)
    rows = made_rows(encoder, LENGTHS["mixed"])
    expected = encoder.two_views(rows)
    monkeypatch.setattr("scd_core.encoder.can_pack", lambda backbone: False)
    torch.testing.assert_close(encoder.two_views(rows), expected, atol=1e-5, rtol=0)


def model_of(folder: Path) -> tuple[TwoViewModel, list[list[int]]]:
    encoder = encoder_of(folder, "cls", 0.0, 1e-9)
    torch.manual_seed(0)
    for module in encoder.modules():  # sentences apart, as a trained encoder has them
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.2)
    model = TwoViewModel(encoder, build_projector(32, Projector(width=64, layers=3)))
    return model, made_rows(encoder, (7, 3, 12, 3, 9, 5, 8, 11))


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_bf16_is_fp32_to_its_digits(
    tiny_model: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views and gradients; weights, gradients and the embeddings' output stay fp32."""
    if not packed:
        for place in ("encoder", "two_view_model"):
            monkeypatch.setattr(f"scd_core.{place}.can_pack", lambda backbone: False)
    model, rows = model_of(tiny_model)
    embedded: list[torch.dtype] = []
    model.encoder.backbone.embeddings.register_forward_hook(
        lambda m, i, out: embedded.append(out.dtype)
    )
    found = {}
    for precision in ("fp32", "bf16"):
        model.zero_grad()
        views = views_in(precision, model, rows)
        sum((v.float() * torch.linspace(-1, 1, v.shape[1])).sum() for v in views).backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found[precision] = views, gradients
    tolerances = (0.02, 0.02, 0.06, 0.06)  # BatchNorm takes away what the sentences share
    for exact, half, tolerance in zip(found["fp32"][0], found["bf16"][0], tolerances, strict=True):
        assert exact.dtype == torch.float32
        assert half.dtype == torch.bfloat16 or not packed
        assert (half.float() - exact).norm() < tolerance * exact.norm()
    assert found["fp32"][1].keys() == found["bf16"][1].keys()
    total = lambda p: torch.cat([g.flatten() for g in found[p][1].values()])  # noqa: E731
    exact, half = total("fp32"), total("bf16")
    assert half.dtype == torch.float32
    assert nn.functional.cosine_similarity(exact, half, dim=0) > 0.99
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert set(embedded) == {torch.float32}


def test_an_unresolved_precision_is_refused(tiny_models: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"optim\.precision = 'auto'"):
        views_in("auto", *model_of(tiny_models["bert"]))


def test_batchnorm_sees_one_view_at_a_time() -> None:
    projector = build_projector(8, Projector(width=16, layers=3)).double()
    a, b = torch.randn(6, 8).double(), 5 + 3 * torch.randn(6, 8).double()
    joint = projector(torch.cat([a, b])).chunk(2)
    x = a
    for layer in projector:
        x = layer.norm(x) if hasattr(layer, "norm") else layer(x)
    torch.testing.assert_close(joint[0], x)
    torch.testing.assert_close(joint[1], projector(torch.cat([b, a])).chunk(2)[0])


def test_encode_packed_takes_positions_of_the_family(tiny_models: dict[str, Path]) -> None:
    """RoBERTa's first position is 2, as its own padded pass has it; BERT's is 0."""
    for family, start in (("bert", 0), ("roberta", 2)):
        encoder = SentenceEncoder(tiny_models[family], "cls")
        set_rates(encoder.backbone, 0.0, 0.1)
        seen: list[Tensor] = []
        encoder.backbone.embeddings.position_embeddings.register_forward_hook(
            lambda m, i, out, seen=seen: seen.append(i[0])
        )
        encode_packed(encoder.backbone, Packing.of([[5, 6, 7], [5, 6]], CPU), "cls")
        assert seen[0].tolist() == [[start, start + 1, start + 2, start, start + 1]] * 2
