"""A trained encoder as a folder that transformers and sentence-transformers open as it is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from scd_core.encoder import SentenceEncoder, quiet_transformers
from scd_core.evaluation.sts import Score
from scd_core.inputs import Inputs
from scd_core.models import HEAD_FILE
from scd_core.ngrams import save_head
from scd_core.pooling import HEAD, POOLING_FILE, POOLING_KEYS, saved_pooling
from scd_core.provenance import Provenance
from scd_core.settings import METHODS


def save_encoder(encoder: SentenceEncoder, folder: Path) -> None:
    """Write weights, tokenizer and pooling to ``folder``, replacing it in one move.

    ``SentenceTransformer(folder)`` gives the vectors of ``encoder.encode``, and
    ``AutoModel.from_pretrained(folder)`` the same encoder. One with a head is for
    ``SentenceEncoder`` only; sentence-transformers refuses it.

    Raises:
        ValueError: a pooling that sentence-transformers has no module for.
    """
    if encoder.pooling not in POOLING_KEYS:
        raise ValueError(
            f"pooling {encoder.pooling!r} cannot be exported; choose one of {list(POOLING_KEYS)}"
        )
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "1_Pooling").mkdir(parents=True)
    with quiet_transformers():
        encoder.backbone.save_pretrained(fresh)
    encoder.tokenizer.save_pretrained(fresh)
    hidden = encoder.width
    modes = {key: name == encoder.pooling for name, key in POOLING_KEYS.items()}
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
    ]
    if encoder.head is not None:
        save_head(encoder.head, fresh)
        modules.append({"idx": 2, "name": "2", "path": "", "type": f"scd_core.ngrams.{HEAD}"})
    files: dict[str, object] = {
        str(POOLING_FILE): {"word_embedding_dimension": hidden, **modes},
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": encoder.limit, "do_lower_case": False},
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine"},
    }
    for name, content in files.items():
        (fresh / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def _usage(folder: Path) -> str:
    if (folder / HEAD_FILE).is_file():
        return f"""from pathlib import Path

from scd_core.encoder import SentenceEncoder

encoder = SentenceEncoder(Path("path/to/this/folder"), "{saved_pooling(folder)}")
vectors = encoder.encode(["A sentence.", "Another."])"""
    return """from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("path/to/this/folder").encode(["A sentence.", "Another."])"""


def write_card(
    folder: Path,
    inputs: Inputs,
    dev: Sequence[Score],
    step: int,
    test: Sequence[Score],
    provenance: Provenance,
) -> None:
    """Write the model card (README.md): recipe, data, scores, and the command that made it."""
    scores = "\n".join(
        f"| {score.split} | {score.task} | {score.text} | {score.pairs} |"
        for score in (*dev, *test)
    )
    (folder / "README.md").write_text(
        f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
---

# Sentence encoder

`{inputs.recipe.model.name}` trained with {METHODS[inputs.recipe.method]} on
{len(inputs.corpus.sentences):,} unlabelled sentences ({inputs.corpus.name}); the checkpoint of step
{step} of {inputs.total_steps}, chosen by `{inputs.selection_key}`.

```python
{_usage(folder)}
```

Pooling: {inputs.recipe.model.pooling}. Vectors are not normalised; compare them by cosine.

## Scores

Spearman correlation x 100 of cosine and gold score over all pairs of a task ("all" aggregation).

| split | task | score | pairs |
|---|---|---|---|
{scores}

## How it was made

```
{provenance.command}
```

Identity `{inputs.identity.key}` (recipe, seed, inputs); commit `{provenance.commit}`; seed
{inputs.recipe.seed}; torch {provenance.versions["torch"]}, transformers
{provenance.versions["transformers"]}; on {provenance.device}.

| input | SHA-256 |
|---|---|
| sentences: {inputs.corpus.name} | `{inputs.corpus.fingerprint}` |
| encoder: {inputs.recipe.model.name} | `{inputs.model_hash}` |
{chr(10).join(f"| dev pairs: {p.name} | `{p.fingerprint}` |" for p in inputs.dev)}

The recipe, for `python -m scd_core.train --recipe recipe.toml`:

```toml
{inputs.recipe.to_toml()}```
""",
        encoding="utf-8",
    )
    (folder / "recipe.toml").write_text(inputs.recipe.to_toml(), encoding="utf-8")
