"""Exact resume: the state of a run between two steps, in safetensors and JSON, never pickle.

A checkpoint is written beside its place and renamed, so that one that is there is whole; its
tensors are checked against a hash before they are used. It keeps the best model of its time too:
the run's may be replaced at a later step that a kill undoes. Random numbers need no state: each
step seeds its own from (seed, step).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_KEPT = 2
_FOLDER = "checkpoints"
_MODEL = "model"
log = logging.getLogger(__name__)


def write_checkpoint(
    folder: Path,
    step: int,
    modules: Mapping[str, torch.nn.Module],
    optimizer: torch.optim.Optimizer,
    record: Mapping[str, Any],
    model: Path | None,
) -> None:
    """Save the state after ``step`` steps below ``folder`` and drop all but the newest two.

    Args:
        record: What else the run must know again, as JSON.
        model: Folder of the best model so far; None where there is none.
    """
    tensors = {
        f"{name}/{key}": value
        for name, module in modules.items()
        for key, value in module.state_dict().items()
    }
    tensors |= _optimizer_tensors(optimizer)
    place = folder / _FOLDER / f"step-{step:08d}"
    fresh = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    save_file(
        {k: v.detach().cpu().contiguous() for k, v in tensors.items()}, fresh / "state.safetensors"
    )
    if model is not None:
        shutil.copytree(model, fresh / _MODEL, copy_function=_link)
    meta = {
        "step": step,
        "sha256": _sha256(fresh / "state.safetensors"),
        "record": dict(record),
        "model": model is not None,
    }
    (fresh / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    for path in fresh.rglob("*"):  # the rename must not overtake the content on a power cut
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)
    for old in _complete(folder)[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def read_checkpoint(
    folder: Path,
    modules: Mapping[str, torch.nn.Module],
    optimizer: torch.optim.Optimizer,
    model: Path,
) -> tuple[int, dict[str, Any]] | None:
    """Restore the newest whole checkpoint in place; damaged ones are passed over with a warning.

    Args:
        model: Folder that becomes the checkpoint's best model. Where there is none it is removed:
            it would be of a step that has to be done again.

    Returns:
        (step, record), or None where there is none.
    """
    for place in _complete(folder):
        try:
            meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
            if _sha256(place / "state.safetensors") != meta["sha256"]:
                raise ValueError("its tensors do not match their hash")
            if meta.get("model") is not (place / _MODEL).is_dir():
                raise ValueError("its best model is not with it")
            tensors = load_file(place / "state.safetensors")
            step, record = int(meta["step"]), dict(meta["record"])
        except (OSError, ValueError, KeyError) as error:
            log.warning("checkpoint %s is damaged (%s): the one before is used", place, error)
            continue
        for name, module in modules.items():
            module.load_state_dict(
                {
                    k.removeprefix(f"{name}/"): v
                    for k, v in tensors.items()
                    if k.startswith(f"{name}/")
                }
            )
        _restore_optimizer(optimizer, tensors)
        _replace_model(model, place / _MODEL)
        return step, record
    _replace_model(model, None)
    return None


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a finished run."""
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)


def _replace_model(model: Path, kept: Path | None) -> None:
    fresh = model.with_name(f"{model.name}.{os.getpid()}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    if kept is not None and kept.is_dir():
        shutil.copytree(kept, fresh, copy_function=_link)
    shutil.rmtree(model, ignore_errors=True)
    if fresh.is_dir():
        fresh.rename(model)


def _link(source: str, target: str) -> None:
    """One content in two places, as a model's weights are never written to again."""
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _complete(folder: Path) -> list[Path]:
    found = (folder / _FOLDER).glob("step-*")
    return sorted((p for p in found if p.suffix != ".tmp"), reverse=True)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer/{index}/{name}": value
        for index, values in state.items()
        for name, value in values.items()
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, rest = key.partition("/")
        if kind == "optimizer":
            index, name = rest.split("/")
            state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
