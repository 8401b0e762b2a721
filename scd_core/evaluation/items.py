"""What scores were computed from, kept as a file, so that runs compare item by item later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from scd_core.evaluation.uncertainty import Items, Judged, Ranked

FILE = "items.safetensors"
"""Name of the artifact in MLflow."""


def save_items(items: Mapping[str, Items], path: Path) -> None:
    """Write the items of each score, by the score's tracked name."""
    arrays = {f"{key}/{name}": a for key, one in items.items() for name, a in one.arrays.items()}
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def load_items(path: Path) -> dict[str, Items]:
    """What ``save_items`` wrote, in the order of the names."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, array in sorted(load_file(path).items()):
        key, _, part = name.rpartition("/")
        found.setdefault(key, {})[part] = array
    return {key: Judged(**a) if "right" in a else Ranked(**a) for key, a in found.items()}
