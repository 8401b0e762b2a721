"""A Hugging Face encoder with its tokenizer and pooling: sentences in, vectors out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from scd_core.ngrams import NgramHead, load_head
from scd_core.packed import Packing, can_pack, encode_packed
from scd_core.pooling import Pooling, saved_pooling
from scd_core.settings import require

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 65536
"""Of a forward pass of ``encode``: with more, they leave a CPU's cache."""


class WeightsError(ValueError):
    """Weights or tokenizer in a folder do not make the encoder its config declares."""


class SentenceEncoder(nn.Module):
    """A stock encoder without pooler layer. ``two_views`` trains, ``encode`` evaluates."""

    def __init__(self, folder: Path, pooling: Pooling) -> None:
        """Load a local model folder in fp32; never touches the network.

        Raises:
            WeightsError: encoder weights missing or left over, or a tokenizer of another family.
            ValueError: a head stands in the pooling's place, and the folder states another one.
        """
        super().__init__()
        self.pooling = pooling
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            self.backbone = _load_backbone(folder)
        except WeightsError:
            raise
        except Exception as error:  # each file format brings errors of its own
            raise WeightsError(f"{folder}: the model cannot be read: {error}") from error
        _check_tokenizer(folder, self.tokenizer, self.backbone)
        self.head: NgramHead | None = load_head(folder, self.backbone.config.hidden_size)
        """Of IS-BERT, in the place of the pooling."""
        if self.head is not None and (saved := saved_pooling(folder)):
            # Its vectors are the same with any; under another name they would be another's scores.
            remedy = f"{folder} has an n-gram head in its place (IS-BERT); give {saved!r}, as saved"
            require(pooling == saved, "pooling", pooling, remedy)
        self.limit = _length_limit(self.tokenizer, self.backbone)
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.device

    @property
    def width(self) -> int:
        """Numbers of a sentence vector: the hidden size, if no head says otherwise."""
        return int(self.backbone.config.hidden_size) if self.head is None else self.head.width

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Sentence vectors (batch, width) of token ids and mask, both (batch, seq)."""
        output = self.backbone(
            input_ids=ids,
            attention_mask=mask,
            output_hidden_states=self.pooling == "first_last",
        )
        if self.head is not None:
            vectors: Tensor = self.head(output.last_hidden_state, mask)
            return vectors
        if self.pooling == "cls":
            return output.last_hidden_state[:, 0]
        states = output.last_hidden_state
        if self.pooling == "first_last":
            # hidden_states[0] is the embedding layer's output; the first layer's follows it.
            states = (output.hidden_states[1] + output.hidden_states[-1]) / 2
        weights = mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)

    def two_views(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Sentence vectors (2 * batch, hidden) of token ids, view A and then view B, to train.

        Without padding where the encoder's parts are known (``packed``), and otherwise ``forward``.
        """
        if self.pooling != "first_last" and can_pack(self.backbone):
            return encode_packed(self.backbone, Packing.of(rows, self.device), self.pooling)
        ids, mask = self.pad(rows)
        return self(ids.repeat(2, 1), mask.repeat(2, 1))

    def encode(
        self,
        sentences: Sequence[str],
        batch_tokens: int | None = None,
        max_length: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Vectors (n, hidden) in the order given; exactly deterministic, dropout off.

        Every distinct sentence is encoded once, in batches of similar length. On a CPU each of
        torch's threads takes whole batches, which is faster than dividing every product among them,
        and makes vectors independent of their number.

        Args:
            sentences: n sentences.
            batch_tokens: Tokens a forward pass, padding counted, but at least one sentence; default
                ``CPU_BATCH_TOKENS`` or ``GPU_BATCH_TOKENS``.
            max_length: Tokens a sentence is cut to; default and upper bound is the model's limit.
                The training length plays no part.
            progress: Called with (done, all) distinct sentences after each batch.
        """
        distinct = list(dict.fromkeys(sentences))
        limit = min(max_length or self.limit, self.limit)
        rows: list[list[int]] = (
            self.tokenizer(distinct, truncation=True, max_length=limit)["input_ids"]
            if distinct
            else []
        )
        if batch_tokens is None:
            batch_tokens = CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS
        vectors = np.empty((len(rows), self.width), dtype=np.float32)

        def encode(chosen: list[int]) -> list[int]:
            with torch.inference_mode():  # a thread's own
                vectors[chosen] = self(*self.pad([rows[i] for i in chosen])).float().cpu().numpy()
            return chosen

        done = 0
        batches = _batches([len(row) for row in rows], batch_tokens)
        with self._evaluating(), _in_threads(self.device) as each:
            for chosen in each(encode, batches):
                done += len(chosen)
                if progress:
                    progress(done, len(rows))
        position = {sentence: i for i, sentence in enumerate(distinct)}
        return vectors[[position[s] for s in sentences]]

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Token ids and mask, both (batch, longest row), on the encoder's device."""
        longest = max(len(row) for row in rows)
        ids = np.full((len(rows), longest), self.tokenizer.pad_token_id, dtype=np.int64)
        mask = np.zeros((len(rows), longest), dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Places of rows, the longest first, as many together as fit when padded to their longest."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // lengths[order[start]])
        yield order[start : start + size]
        start += size


@contextlib.contextmanager
def _in_threads(device: torch.device) -> Iterator[Callable[..., Iterator[Any]]]:
    """A ``map`` over torch's threads, each of which computes alone; on a GPU, the usual one."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield map
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(threads)  # what the next new thread begins with


def _load_backbone(folder: Path) -> PreTrainedModel:
    options = {
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
        "dtype": torch.float32,
        "output_loading_info": True,
    }
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with quiet_transformers():
        try:
            backbone, info = AutoModel.from_pretrained(
                folder, config=config, add_pooling_layer=False, **options
            )
        except TypeError:  # a family without a pooler to leave out
            backbone, info = AutoModel.from_pretrained(folder, config=config, **options)
    missing = sorted(k for k in info["missing_keys"] if not k.startswith("pooler."))
    # Heads of pretraining may be left over; parts of the encoder may not.
    parts = tuple(f"{name}." for name, _ in backbone.named_children())
    prefix = f"{backbone.base_model_prefix}."
    left_over = sorted(
        key
        for key in info["unexpected_keys"]
        if key.removeprefix(prefix).startswith(parts) and not key.endswith("position_ids")
    )
    if missing or left_over:
        raise WeightsError(
            f"{folder}: the weights do not fit {type(backbone).__name__}; missing: "
            f"{missing[:5] or 'none'}, unexpected: {left_over[:5] or 'none'}"
        )
    return backbone


def _check_tokenizer(folder: Path, tokenizer: object, backbone: PreTrainedModel) -> None:
    config, size = backbone.config, len(tokenizer)  # type: ignore[arg-type]
    pad, start = getattr(tokenizer, "pad_token_id", None), getattr(tokenizer, "cls_token_id", None)
    first = tokenizer("a")["input_ids"][0]  # type: ignore[operator]
    problems = []
    if size > config.vocab_size:
        problems.append(f"{size} tokens for {config.vocab_size} embeddings")
    if pad != config.pad_token_id:
        problems.append(f"padding id {pad}, the model's is {config.pad_token_id}")
    if start is None or first != start:
        problems.append(f"sentences start with id {first}, its start token is {start}")
    if problems:
        raise WeightsError(
            f"{folder}: the tokenizer ({type(tokenizer).__name__}) does not belong to this "
            f"{config.model_type} model: {'; '.join(problems)}; put the model's own tokenizer there"
        )


def _length_limit(tokenizer: object, backbone: PreTrainedModel) -> int:
    """Tokens the model can take: RoBERTa's positions start behind its padding id."""
    positions = int(backbone.config.max_position_embeddings)
    table = getattr(getattr(backbone, "embeddings", None), "position_embeddings", None)
    offset = getattr(table, "padding_idx", None)
    if offset is not None:
        positions -= offset + 1
    return min(positions, int(getattr(tokenizer, "model_max_length", positions)))


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No report of absent poolers and heads: what matters of it is checked and raised here."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()
