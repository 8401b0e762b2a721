"""Skip-thought (Kiros et al. 2015, "Skip-Thought Vectors") on a BERT or RoBERTa encoder.

From the vector h of a sentence, one GRU decoder writes the sentence before it and another the one
after it, word by word: their Eq. 4 to 10, loss -log P(previous | h) - log P(next | h). The decoders
share word vectors and output layer. The corpus must be consecutive sentences of running text, as
the first 11,913 lines of the published Wikipedia file are: whole articles one after another.

Deviations: the encoder is the recipe's pretrained one, not a GRU trained from nothing on books, so
the published row is not this; tokens are the encoder's, and its word vectors are the decoders'
input and, transposed, their output layer; h enters a decoder at every step beside the word and not
in its gates; the mean over tokens in place of their sum. Ends of documents are not known, so some
neighbours are of another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from scd_core.encoder import SentenceEncoder
from scd_core.learners.learner import Learner
from scd_core.recipe import Recipe
from scd_core.two_view import set_rate


class NeighbourTerms(NamedTuple):
    """The sum of the two decoders' mean loss a token, and each; scalars, in nats."""

    loss: Tensor
    previous: Tensor
    following: Tensor


def build(encoder: SentenceEncoder, recipe: Recipe) -> Learner:
    """Skip-thought around ``encoder``; the decoders' weights are drawn from torch's stream."""
    set_rate(encoder.backbone, recipe.views.r_a)
    return Learner(Neighbours(encoder), neighbours, two_views=False)


def neighbours(
    previous: Tensor, previous_words: Tensor, following: Tensor, following_words: Tensor
) -> NeighbourTerms:
    """Mean cross-entropy a token of both neighbours.

    previous, following: (tokens, vocabulary) scores; the words: (tokens,) ids.
    """
    with torch.autocast(previous.device.type, enabled=False):
        before = cross_entropy(previous.float(), previous_words)
        after = cross_entropy(following.float(), following_words)
    return NeighbourTerms(before + after, before, after)


class Decoder(nn.Module):
    """A GRU that writes a sentence from a vector, given the words before each word."""

    def __init__(self, hidden: int, words: int) -> None:
        """hidden: of the sentence vector; words: width of a word vector."""
        super().__init__()
        self.gru = nn.GRU(words + hidden, hidden, batch_first=True)
        self.to_word = nn.Linear(hidden, words)

    def forward(self, vectors: Tensor, embedded: Tensor, lengths: Tensor) -> Tensor:
        """What each next word's vector is compared with, (batch, seq, words).

        vectors: (batch, hidden); embedded: (batch, seq, words); lengths: (batch,) on the CPU.
        """
        conditioned = vectors.unsqueeze(1).expand(-1, embedded.shape[1], -1)
        inputs = torch.cat([embedded, conditioned], dim=2)
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        written: Tensor = self.to_word(states)
        return written


class Neighbours(nn.Module):
    """Token ids of (previous, sentence, next) to scores of the neighbours' words, and the words."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """Word vectors are the encoder's own, and go on being trained with it."""
        super().__init__()
        words = self._table(encoder).embedding_dim
        self.encoder = encoder
        self.previous = Decoder(encoder.width, words)
        self.following = Decoder(encoder.width, words)

    def forward(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """rows: token ids, special tokens included, not padded; 3 * batch of them.

        The first special token starts a decoder, and the last is the word that ends it.
        """
        vectors = self.encoder(*self.encoder.pad(rows[1::3]))
        before = self._scores(self.previous, vectors, rows[0::3])
        after = self._scores(self.following, vectors, rows[2::3])
        return *before, *after

    def _scores(
        self, decoder: Decoder, vectors: Tensor, rows: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        ids, mask = self.encoder.pad(rows)
        table = self._table(self.encoder)
        lengths = torch.tensor([len(row) - 1 for row in rows])
        written = decoder(vectors, table(ids[:, :-1]), lengths)
        real = mask[:, 1:].bool()
        return written[real] @ table.weight.T, ids[:, 1:][real]

    @staticmethod
    def _table(encoder: SentenceEncoder) -> nn.Embedding:
        return cast(nn.Embedding, encoder.backbone.get_input_embeddings())
