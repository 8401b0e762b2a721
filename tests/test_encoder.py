"""Vectors belong to their sentences, whatever the batch; broken folders are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from scd_core.encoder import SentenceEncoder, WeightsError
from scd_core.pooling import Pooling
from tests.conftest import WORDS

LONG = " ".join(WORDS * 34)  # 612 words, far over the tiny models' 64 tokens


def mixed_sentences() -> list[str]:
    """40 sentences of mixed length, 5 of them repeated, one far too long."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, size)) for size in draw.integers(1, 30, 34)]
    return [*texts, LONG, *texts[:5]]


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last"])
def test_rows_do_not_depend_on_batch_or_order(tiny_model: Path, pooling: Pooling) -> None:
    encoder = SentenceEncoder(tiny_model, pooling)
    sentences = mixed_sentences()
    alone = np.concatenate([encoder.encode([s]) for s in sentences])
    assert alone.shape == (40, 32)
    for tokens in (1, 200, 2000):  # alone, a few and all at once
        np.testing.assert_allclose(encoder.encode(sentences, tokens), alone, atol=1e-5)
    order = np.random.default_rng(1).permutation(len(sentences))
    shuffled = encoder.encode([sentences[i] for i in order], 200)
    np.testing.assert_allclose(shuffled, alone[order], atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last"])
def test_vectors_do_not_depend_on_the_number_of_threads(tiny_model: Path, pooling: Pooling) -> None:
    encoder, threads = SentenceEncoder(tiny_model, pooling), torch.get_num_threads()
    found = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append(encoder.encode(mixed_sentences(), 60))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last"])
def test_pooling_by_hand(tiny_model: Path, pooling: Pooling) -> None:
    encoder = SentenceEncoder(tiny_model, pooling)
    sentences = ["the cat sat", "a dog ran on the red road"]
    for sentence, vector in zip(sentences, encoder.encode(sentences), strict=True):
        ids = torch.tensor([encoder.tokenizer(sentence)["input_ids"]])
        with torch.no_grad():
            output = encoder.backbone(ids, output_hidden_states=True)
        expected = {
            "cls": output.last_hidden_state[0, 0],
            "mean": output.last_hidden_state[0].mean(0),
            "first_last": (output.hidden_states[1][0] + output.hidden_states[-1][0]).mean(0) / 2,
        }[pooling]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


def test_the_first_token_is_the_familys_start(tiny_models: dict[str, Path]) -> None:
    for family, start in (("bert", "[CLS]"), ("roberta", "<s>")):
        encoder = SentenceEncoder(tiny_models[family], "cls")
        first = encoder.tokenizer("the cat")["input_ids"][0]
        assert encoder.tokenizer.convert_ids_to_tokens(first) == start


def test_long_sentences_are_cut_at_the_models_limit(tiny_model: Path) -> None:
    """RoBERTa has two positions fewer than its table (512 of 514): here 64 of 66."""
    encoder = SentenceEncoder(tiny_model, "mean")
    assert encoder.limit == 64
    assert np.isfinite(encoder.encode([LONG])).all()
    cut = " ".join(LONG.split()[:62])
    np.testing.assert_allclose(encoder.encode([LONG]), encoder.encode([cut]), atol=1e-6)
    short = encoder.encode([LONG], max_length=10)
    np.testing.assert_allclose(short, encoder.encode([" ".join(LONG.split()[:8])]), atol=1e-6)
    np.testing.assert_array_equal(encoder.encode([LONG], max_length=9999), encoder.encode([LONG]))


def test_nothing_to_encode(tiny_model: Path) -> None:
    assert SentenceEncoder(tiny_model, "cls").encode([]).shape == (0, 32)


def test_a_batch_holds_as_many_tokens_as_it_may(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences of 3, 5 and 12 tokens with the two special ones: 12 or more, then 3 x 5 or less."""
    encoder = SentenceEncoder(tiny_model, "cls")
    shapes, pad = [], encoder.pad

    def noted(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = pad(rows)
        shapes.append(tuple(ids.shape))
        return ids, mask

    monkeypatch.setattr(encoder, "pad", noted)
    ten = " ".join(WORDS[:10])
    encoder.encode(["the", "the cat sat", ten, "a", "a dog ran", "red cat sat"], 15)
    assert shapes == [(1, 12), (3, 5), (2, 3)]


def test_progress_counts_distinct_sentences(tiny_model: Path) -> None:
    seen: list[tuple[int, int]] = []
    SentenceEncoder(tiny_model, "cls").encode(
        ["a", "b cat", "a"], 1, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 2), (2, 2)]


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def test_a_missing_weight_is_named(tiny_model: Path, tmp_path: Path) -> None:
    folder = copy(tiny_model, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsError, match=r"missing.*encoder\.layer\.1\.output\.dense\.weight"):
        SentenceEncoder(folder, "cls")


def test_an_unexpected_weight_is_named(tiny_model: Path, tmp_path: Path) -> None:
    folder = copy(tiny_model, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.2.output.dense.weight"] = torch.zeros(32, 64)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsError, match=r"unexpected.*encoder\.layer\.2\.output\.dense"):
        SentenceEncoder(folder, "cls")


def test_a_pretraining_head_may_be_left_over(tiny_model: Path, tmp_path: Path) -> None:
    """Published BERT and RoBERTa weights carry heads and a prefix; a pooler may be absent."""
    folder = copy(tiny_model, tmp_path / "model")
    prefix = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    weights = load_file(folder / "model.safetensors")
    renamed = {f"{prefix}.{key}": value for key, value in weights.items()}
    renamed |= {name: torch.zeros(64) for name in ("cls.predictions.bias", "lm_head.bias")}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    expected = SentenceEncoder(tiny_model, "cls").encode(["the cat"])
    np.testing.assert_array_equal(SentenceEncoder(folder, "cls").encode(["the cat"]), expected)


@pytest.mark.parametrize(("model", "tokenizer"), [("roberta", "bert"), ("bert", "roberta")])
def test_a_tokenizer_of_another_family_is_refused(
    tiny_models: dict[str, Path], tmp_path: Path, model: str, tokenizer: str
) -> None:
    folder = copy(tiny_models[model], tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_models[tokenizer] / name, folder / name)
    with pytest.raises(WeightsError, match="does not belong to this"):
        SentenceEncoder(folder, "cls")
