"""Fixtures shared by all tests: data, tiny models, a home of their own, a closed network."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
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
from tests.commands import NO_NETWORK

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


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 90 sentences and 12 graded pairs of the tiny models' words."""
    folder = tmp_path_factory.mktemp("texts")
    draw = np.random.default_rng(0)

    def sentence() -> str:
        return " ".join(draw.choice(WORDS, draw.integers(3, 12)))

    lines = [sentence() for _ in range(90)]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = [f"{sentence()}\t{sentence()}\t{i % 6}" for i in range(12)]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    triplets = [f"{line},{line} {WORDS[i % 13]},{sentence()}" for i, line in enumerate(lines[:80])]
    header = "sent0,sent1,hard_neg"
    (folder / "triplets.csv").write_text("\n".join([header, *triplets]) + "\n", encoding="utf-8")
    return folder


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


@pytest.fixture
def environment(tmp_path: Path, own_home: Path) -> dict[str, str]:
    """No offline variable set, no network, and a working folder with misleading names."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    for name in ("datasets", "mlflow", "ray"):
        (tmp_path / "cwd" / name).mkdir(parents=True)
    path = os.pathsep.join([str(tmp_path / "site"), str(CHECKOUT)])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_"))}
    return kept | {
        "PYTHONPATH": path,
        "SCD_HOME": str(own_home),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "HF_HOME": str(tmp_path / "hub"),
    }


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[None]:
    """Two CPUs and a logical GPU of Ray, started once."""
    import search.cluster as cluster

    cluster.start(cpus=2, gpus=1)
    yield
    cluster.ray.shutdown()
