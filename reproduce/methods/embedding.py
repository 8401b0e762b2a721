"""An encoder as it comes: [CLS], average of the last layer, or of the first and the last layer.

Rows "[CLS]-embedding", "Avg. BERT embeddings" and "first-last avg" of the tables. Which layers and
tokens are averaged is said at ``scd_core.pooling.Pooling``; no pooler layer takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scd_core.corpus import Corpus
from scd_core.device import default_device
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.vectors import Encode
from scd_core.models import model_fingerprint, model_folder
from scd_core.pooling import Pooling, saved_pooling


@dataclass(frozen=True)
class Embedding:
    """The vectors of an encoder, nothing fitted."""

    folder: Path
    """A model folder; ``encoder`` finds one by name."""
    pooling: Pooling
    name: str = "embedding"

    def fit(self, corpus: Corpus | None = None) -> Encode:
        """Load the encoder; ``corpus`` plays no part.

        Raises:
            WeightsError: the folder does not hold a whole encoder.
        """
        return SentenceEncoder(self.folder, self.pooling).to(default_device()).encode

    def settings(self) -> dict[str, Any]:
        """Weights and pooling."""
        return {"model_fingerprint": model_fingerprint(self.folder), "pooling": self.pooling}


def encoder(name: str, pooling: Pooling, revision: str | None = None) -> Embedding:
    """The encoder that a folder, a Hub name or "bundled" names.

    Raises:
        ModelNotFoundError: there is none.
    """
    return Embedding(model_folder(name, revision), pooling)


def sbert(
    name: str = "sentence-transformers/bert-base-nli-mean-tokens", revision: str | None = None
) -> Embedding:
    """SBERT (Reimers and Gurevych 2019) as it is published: any folder that states its pooling.

    Not trained here. The default is the authors' model on SNLI and MNLI, mean pooling.

    Raises:
        ModelNotFoundError: there is no such model.
        ValueError: its folder states no pooling, or one that is not computed here.
    """
    folder = model_folder(name, revision)
    pooling = saved_pooling(folder)
    if pooling is None:
        raise ValueError(
            f"{folder} does not state its pooling, so it is no sentence-transformers model; use "
            "embedding.encoder(name, pooling)"
        )
    return Embedding(folder, pooling, "sbert")
