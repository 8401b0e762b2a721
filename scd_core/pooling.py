"""How token vectors become a sentence vector, and which way a model folder states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from scd_core.ngrams import NgramHead

Pooling = Literal["cls", "mean", "first_last"]
"""First token of the last layer; mean of the last layer over real tokens; mean of the first and the
last layer averaged, over real tokens."""

HEAD = NgramHead.__name__
POOLING_FILE = Path("1_Pooling") / "config.json"
POOLING_KEYS: dict[Pooling, str] = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
}
"""Of the poolings that a folder in the sentence-transformers layout can state, their settings."""


def saved_pooling(folder: Path) -> Pooling | None:
    """The pooling that a folder states in the sentence-transformers layout; None if it states none.

    Raises:
        ValueError: it states one that this project does not compute.
    """
    path, modules = folder / POOLING_FILE, folder / "modules.json"
    if not path.is_file():
        return None
    if modules.is_file():
        kinds = {m["type"].rpartition(".")[2] for m in json.loads(modules.read_text("utf-8"))}
        if unknown := kinds - {"Transformer", "Pooling", "Normalize", HEAD}:
            raise ValueError(
                f"{modules} has modules that are not computed here: {sorted(unknown)}; the scores "
                "would not be that model's. Say --pooling to score its encoder without them"
            )
    settings = folder / "sentence_bert_config.json"
    if settings.is_file() and json.loads(settings.read_text("utf-8")).get("do_lower_case"):
        raise ValueError(
            f"{settings} asks for lower-casing outside the tokenizer, which is not done here"
        )
    stated = json.loads(path.read_text(encoding="utf-8"))
    chosen = [key for key, value in stated.items() if key.startswith("pooling_mode") and value]
    if isinstance(stated.get("pooling_mode"), str):  # the layout of newer releases
        chosen = [f"pooling_mode_{stated['pooling_mode'].replace('mean', 'mean_tokens')}"]
        chosen = [key.replace("mode_cls", "mode_cls_token") for key in chosen]
    for name, key in POOLING_KEYS.items():
        if chosen == [key]:
            return name
    raise ValueError(f"{path} asks for {chosen}; only {list(POOLING_KEYS)} are computed here")
