"""Model folders: found without importing anything, checked, never fetched when they are local."""

from __future__ import annotations

import json
import time
from pathlib import Path

import huggingface_hub
import pytest

from scd_core.models import BUNDLED, ModelNotFoundError, model_fingerprint, model_folder


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


def test_a_hub_name_offline_fails_at_once_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No variable is set: the connection itself fails, as without a network."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    started = time.monotonic()
    with pytest.raises(ModelNotFoundError) as error:
        model_folder("nobody/no-such-model")
    assert time.monotonic() - started < 5
    assert "nobody/no-such-model" in str(error.value)
    assert "--model.name" in str(error.value)
