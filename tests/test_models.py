"""Model folders: found without importing anything, checked, never fetched when they are local."""

from __future__ import annotations

import json
import logging
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from safetensors.torch import load_file, save_file

from scd_core.encoder import SentenceEncoder
from scd_core.models import BUNDLED, PINNED, ModelNotFoundError, model_fingerprint, model_folder


def test_the_bundled_encoder_is_found_and_whole() -> None:
    folder = model_folder(BUNDLED)
    assert (folder / "model.safetensors").is_file()
    assert model_fingerprint(folder) == model_fingerprint(folder)


def test_a_folder_named_like_a_package_is_the_folder(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("datasets", "mlflow", "ray"):
        (tmp_path / name).symlink_to(tiny_model)
    monkeypatch.chdir(tmp_path)
    assert model_folder("datasets") == tiny_model.resolve()


def test_fingerprint_follows_the_content(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    a, b = (model_fingerprint(folder) for folder in tiny_models.values())
    assert a != b
    (tmp_path / "config.json").write_text("{}")
    empty = model_fingerprint(tmp_path)
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert model_fingerprint(tmp_path) != empty


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "a/b/c"])
def test_a_missing_folder_is_not_asked_of_the_hub(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        model_folder(name)


def test_other_formats_and_own_code_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        model_folder(str(tmp_path))
    config = tmp_path / "config.json"
    config.write_text("{}")
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelNotFoundError, match="safetensors"):
        model_folder(str(tmp_path))
    (tmp_path / "model.safetensors").touch()
    config.write_text(json.dumps({"auto_map": {"AutoModel": "own.Code"}}))
    with pytest.raises(ModelNotFoundError, match="code of its own"):
        model_folder(str(tmp_path))


COMMIT = "0123456789abcdef0123456789abcdef01234567"
PINNED_NAME = "bert-base-uncased"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache, and no Hub: every question to it fails, as without a network."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cache_model(hub: Path, name: str, commit: str, model: Path, but: str = "") -> Path:
    """Put a model into a Hub cache as "main", without the files whose names begin with ``but``."""
    place = hub / f"models--{name.replace('/', '--')}"
    folder = place / "snapshots" / commit
    folder.mkdir(parents=True)
    for file in model.iterdir():
        if not but or not file.name.startswith(but):
            shutil.copy(file, folder)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    return folder.resolve()


def in_shards(model: Path, folder: Path) -> Path:
    """A copy of a model folder with its weights in two files."""
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    of_name = {name: parts[i % 2] for i, name in enumerate(weights)}
    for part in parts:
        chosen = {name: weights[name] for name in weights if of_name[name] == part}
        save_file(chosen, folder / part, {"format": "pt"})
    index = json.dumps({"metadata": {}, "weight_map": of_name})
    (folder / "model.safetensors.index.json").write_text(index)
    return folder


def test_a_hub_name_offline_fails_at_once_and_says_what_to_do(hub: Path) -> None:
    """No variable is set: the connection itself fails, as without a network."""
    started = time.monotonic()
    with pytest.raises(ModelNotFoundError) as error:
        model_folder("nobody/no-such-model")
    assert time.monotonic() - started < 5
    assert "nobody/no-such-model" in str(error.value)
    assert "--model.name" in str(error.value)


@pytest.mark.parametrize("missing", ["config", "tokenizer.json", "model.", "model-00002"])
def test_a_cached_model_in_part_is_downloaded(
    hub: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
) -> None:
    """What a cut download leaves is not taken for the model, and refused where there is no Hub."""
    whole = in_shards(tiny_model, tmp_path / "whole") if "-" in missing else tiny_model
    part = cache_model(hub, PINNED_NAME, PINNED[PINNED_NAME], whole, missing)
    with pytest.raises(ModelNotFoundError, match="nor whole in the local Hub cache"):
        model_folder(PINNED_NAME)
    download = huggingface_hub.snapshot_download

    def fetch(name: str, *, local_files_only: bool = False, **options: Any) -> str:
        if not local_files_only:
            for file in whole.iterdir():
                shutil.copy(file, part)
        return str(download(name, local_files_only=True, **options))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *args, **kwargs: None)
    assert model_folder(PINNED_NAME) == part
    SentenceEncoder(part, "cls")


@pytest.mark.parametrize("shards", [False, True])
def test_a_whole_cached_commit_is_taken_without_asking(
    hub: Path,
    tiny_model: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    shards: bool,
) -> None:
    whole = in_shards(tiny_model, tmp_path / "whole") if shards else tiny_model
    pinned = cache_model(hub, PINNED_NAME, PINNED[PINNED_NAME], whole)
    other = cache_model(hub, "somebody/model", COMMIT, whole)
    with caplog.at_level(logging.WARNING):
        assert model_folder(PINNED_NAME) == pinned
        assert model_folder("somebody/model", COMMIT) == other
    assert not caplog.records


def test_a_cached_branch_is_taken_where_the_hub_does_not_answer(
    hub: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = cache_model(hub, "somebody/model", COMMIT, tiny_model)
    with caplog.at_level(logging.WARNING):
        assert model_folder("somebody/model") == folder
    assert COMMIT in caplog.text
    assert "Name or service not known" in caplog.text
    with pytest.raises(ModelNotFoundError, match="revision 'v2'"):
        model_folder("somebody/model", "v2")


def test_a_download_is_known_by_its_branch_afterwards(
    hub: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    """The cache keeps which commit "main" was only for a download that asked for "main"."""
    asked = []

    def fetch(name: str, *, revision: str, **options: object) -> str:
        asked.append(revision)
        return str(tiny_model)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    info = SimpleNamespace(sha=COMMIT)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *args, **kwargs: info)
    assert model_folder("somebody/model") == tiny_model.resolve()
    assert asked == ["main"]


def test_a_file_that_only_the_caches_list_misses_makes_a_model_partial(
    hub: Path, tiny_model: Path
) -> None:
    """Of a commit whose files the cache lists: what is read must be there, nothing else."""
    cache: Any = pytest.importorskip("huggingface_hub._snapshot_download")
    if not hasattr(cache, "write_tree_cache"):
        pytest.skip("caches of this huggingface_hub do not list a commit's files")
    folder = cache_model(hub, "somebody/model", COMMIT, tiny_model)
    listed = {path.name for path in tiny_model.iterdir()} | {"onnx/config.json", "README.md"}
    for extra, whole in ((set(), True), ({"1_Pooling/config.json"}, False)):
        files = {n: cache.TreeCacheEntry(1, "0" * 40, None, None, None) for n in listed | extra}
        cache.write_tree_cache(str(folder.parents[1]), COMMIT, files)
        if whole:
            assert model_folder("somebody/model", COMMIT) == folder
        else:
            with pytest.raises(ModelNotFoundError, match="nor whole"):
                model_folder("somebody/model", COMMIT)
