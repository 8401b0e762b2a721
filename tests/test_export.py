"""A trained folder opens everywhere with the same vectors, and says what it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from scd_core.encoder import SentenceEncoder
from scd_core.export import save_encoder
from scd_core.pooling import saved_pooling
from scd_core.two_view import set_rates

SENTENCES = ["the cat sat on the mat", "a dog", "the red dog sat on the blue road and then ran"]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_other_libraries_give_the_same_vectors(
    tiny_model: Path, tmp_path: Path, pooling: str
) -> None:
    encoder = SentenceEncoder(tiny_model, pooling)  # type: ignore[arg-type]
    set_rates(encoder.backbone, 0.3, 0.5)
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.01)
    expected = encoder.encode(SENTENCES)
    save_encoder(encoder, tmp_path / "model")
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(opened.encode(SENTENCES), expected, atol=1e-5)
    assert opened.max_seq_length == encoder.limit
    assert saved_pooling(tmp_path / "model") == pooling
    again = SentenceEncoder(tmp_path / "model", pooling)  # type: ignore[arg-type]
    np.testing.assert_allclose(again.encode(SENTENCES), expected, atol=1e-6)
    model = AutoModel.from_pretrained(tmp_path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    vectors = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(vectors.numpy(), expected, atol=1e-5)


def test_the_project_leaves_no_trace_in_the_config(tiny_model: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "cls")
    set_rates(encoder.backbone, 0.3, 0.5)
    save_encoder(encoder, tmp_path / "model")
    text = (tmp_path / "model" / "config.json").read_text(encoding="utf-8")
    assert "scd" not in text
    assert json.loads(text)["hidden_dropout_prob"] == 0.1


def test_saving_again_replaces_the_folder(tiny_model: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder(tiny_model, "cls")
    save_encoder(encoder, tmp_path / "model")
    (tmp_path / "model" / "stray.txt").touch()
    save_encoder(encoder, tmp_path / "model")
    assert not (tmp_path / "model" / "stray.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_first_last_cannot_be_exported(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="first_last"):
        save_encoder(SentenceEncoder(tiny_model, "first_last"), tmp_path / "model")


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode": "cls", "embedding_dimension": 32}, "cls"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_pooling_is_read_from_either_layout(
    tmp_path: Path, stated: dict[str, object], expected: str
) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(stated))
    assert saved_pooling(tmp_path) == expected


def test_modules_that_are_not_computed_are_refused_by_name(
    tiny_model: Path, tmp_path: Path
) -> None:
    save_encoder(SentenceEncoder(tiny_model, "mean"), tmp_path / "model")
    path = tmp_path / "model" / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8"))
    kind = "sentence_transformers.models.Dense"
    path.write_text(json.dumps([*modules, {"idx": 2, "name": "2", "path": "2", "type": kind}]))
    with pytest.raises(ValueError, match="Dense"):
        saved_pooling(tmp_path / "model")


def test_unknown_pooling_is_refused_and_none_is_none(tmp_path: Path) -> None:
    assert saved_pooling(tmp_path) is None
    (tmp_path / "1_Pooling").mkdir()
    stated = {"pooling_mode_max_tokens": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(stated))
    with pytest.raises(ValueError, match="pooling_mode_max_tokens"):
        saved_pooling(tmp_path)
