"""Fixtures shared by all tests: data, tiny models, a home of their own, a closed network."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from scd_core.cli import quiet_libraries
from scd_core.tracking import Tracking

CHECKOUT = Path(__file__).resolve().parents[1]
# Tiny tensors gain nothing from threads, and on a busy machine threads wait for each other.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The evaluation data beside the project; skips where there is none."""
    for folder in (os.environ.get("SCD_DATA_DIR"), CHECKOUT.parent / "shared" / "data"):
        if folder and (Path(folder) / "senteval").is_dir():
            return Path(folder)
    pytest.skip("no evaluation data: set SCD_DATA_DIR to a folder that holds senteval/")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test writes below a folder of its own."""
    home = tmp_path / "home"
    monkeypatch.setenv("SCD_HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return home


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that MLflow has set up; its migrations take seconds."""
    quiet_libraries()
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    Tracking(f"sqlite:///{path}").find("trial")
    return path


@pytest.fixture
def ready_home(own_home: Path, empty_store: Path) -> Path:
    """The test's own home, with an MLflow store in it that has no run."""
    own_home.mkdir(parents=True)
    shutil.copy(empty_store, own_home / "mlflow.db")
    return own_home


WORDS = (
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "under",
    "mat",
    "road",
    "fast",
    "red",
    "blue",
)


def _word_tokenizer(special: dict[str, str], start: str, end: str) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate([*special.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        special_tokens=[(start, vocabulary[start]), (end, vocabulary[end])],
    )
    return tokenizer


def _bert(folder: Path) -> None:
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    tokenizer = _word_tokenizer(special, "[CLS]", "[SEP]")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, **special
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)


def _roberta(folder: Path) -> None:
    special = {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    tokenizer = _word_tokenizer(special, "<s>", "</s>")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        cls_token="<s>",
        sep_token="</s>",
        **special,
    ).save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=66,  # as RoBERTa's 514: two positions are taken by the padding id
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)


_FAMILIES: dict[str, Callable[[Path], None]] = {"bert": _bert, "roberta": _roberta}


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of randomly initialised 2-layer encoders, hidden 32, by family."""
    folders = {}
    for family, make in _FAMILIES.items():
        folders[family] = tmp_path_factory.mktemp(family)
        torch.manual_seed(0)
        make(folders[family])
    return folders


@pytest.fixture(params=list(_FAMILIES))
def tiny_model(request: pytest.FixtureRequest, tiny_models: dict[str, Path]) -> Path:
    """The tiny model folder of each family in turn."""
    return tiny_models[request.param]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to anything but this machine fail the test that makes them."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        local = self.family == socket.AF_UNIX or str(address[0]) in ("127.0.0.1", "::1")
        if not local:
            raise AssertionError(f"a test connected to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[None]:
    """Two CPUs and a logical GPU of Ray, started once."""
    import search.cluster as cluster

    cluster.start(cpus=2, gpus=1)
    yield
    cluster.ray.shutdown()
