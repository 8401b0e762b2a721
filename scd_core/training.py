"""The one training loop. It reads downward: batch, losses, step, dev score.

It computes and yields; who consumes it logs, reports, prunes or stops. Any step can be the last of
a process: run again on the same folder, it goes on from its checkpoint to the same weights, to the
bit on CPU. Evaluation draws no random numbers that training could feel.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from scd_core.checkpoint import read_checkpoint, remove_checkpoints, write_checkpoint
from scd_core.corpus import batch_indices, tokenise
from scd_core.device import default_device
from scd_core.distributed import refuse_several_processes
from scd_core.divergence import LossWatch
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation import geometry
from scd_core.evaluation.sts import Score, score_all
from scd_core.evaluation.vectors import encode_once
from scd_core.export import save_encoder
from scd_core.inputs import Inputs
from scd_core.learners import build
from scd_core.learners.learner import Losses
from scd_core.places import cache
from scd_core.run_folder import (
    Evaluation,
    Result,
    as_evaluation,
    claim_folder,
    forget_result,
    model_path,
    read_result,
    write_result,
)
from scd_core.settings import require

_WEIGHTS_STREAM, _DROPOUT_STREAM = 0, 1  # of the run's seed


@dataclass(frozen=True)
class StepRecord:
    """One optimiser step done: ``step`` counts from 1 to ``total``."""

    step: int
    total: int
    terms: Losses
    """A named tuple of scalars on the device: the loss and its parts."""
    learning_rate: float


def train(
    inputs: Inputs,
    folder: Path,
    device: torch.device | None = None,
    checkpoint_seconds: float = 300.0,
) -> Generator[StepRecord | Evaluation]:
    """Train the recipe's method, yielding each step and each dev evaluation.

    At a step that is evaluated, the ``Evaluation`` comes before the ``StepRecord``, and the best
    encoder by the declared dev score lies in the folder by then. The ``Result`` is written at the
    end; a finished run yields nothing. Closing the iterator saves a checkpoint; so does the clock,
    every ``checkpoint_seconds``.

    Raises:
        ValueError: ``folder`` belongs to another run, sentences are to be longer than the encoder
            takes, a dropout cannot be placed, or this is one of several processes of ``torchrun``.
        DivergedError: the loss became NaN or infinite. On a GPU that is seen one step late: the
            record of that step has been yielded then, but it is in no evaluation or checkpoint.
    """
    refuse_several_processes()
    claim_folder(inputs, folder)
    if read_result(folder) is not None:
        return
    forget_result(folder)  # of a model that was lost: until the end there is none
    recipe, optim = inputs.recipe, inputs.recipe.optim
    device, total, items = device or default_device(), inputs.total_steps, inputs.items
    encoder = SentenceEncoder(inputs.model, recipe.model.pooling).to(device)
    limit = f"the encoder takes at most {encoder.limit} tokens; lower it to that"
    require(optim.max_length <= encoder.limit, "optim.max_length", optim.max_length, limit)
    _seed(recipe.seed, _WEIGHTS_STREAM, 0)
    learner = build(encoder, recipe)
    parameters = list(learner.model.to(device).parameters())
    tokens = tokenise(inputs.corpus, encoder.tokenizer, optim.max_length, cache())
    optimizer = torch.optim.AdamW(parameters, optim.lr, weight_decay=optim.weight_decay, fused=True)
    scaler = torch.amp.GradScaler(device.type, enabled=optim.precision == "fp16")
    modules = dict(learner.model.named_children())
    remedy = f"lower optim.lr ({optim.lr})"
    if recipe.method == "scd":
        remedy += f" or objective.alpha ({recipe.objective.alpha})"
    watch = LossWatch(total, remedy, late=device.type == "cuda")

    start, best = 0, None
    if restored := read_checkpoint(folder, modules, optimizer, model_path(folder)):
        start, record = restored
        best = as_evaluation(record["best"]) if record["best"] else None
        scaler.load_state_dict(record["scaler"])

    def save(step: int) -> None:
        watch.settle()
        record = {"best": asdict(best) if best else None, "scaler": scaler.state_dict()}
        model = model_path(folder) if best else None
        write_checkpoint(folder, step, modules, optimizer, record, model)

    saved, done = time.monotonic(), start
    try:
        for step in range(start, total):
            learner.model.train()
            chosen = batch_indices(items.count(len(tokens)), optim.batch_size, recipe.seed, step)
            _seed(recipe.seed, _DROPOUT_STREAM, step)
            terms = learner(tokens.batch(items.rows(chosen)), optim.precision)
            watch.see(step + 1, terms.loss)

            learning_rate = optim.lr * (1 - step / total)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(terms.loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, optim.clip_norm)
            scaler.step(optimizer)
            scaler.update()
            done = step + 1

            if done % recipe.selection.every == 0 or done == total:
                watch.settle()
                evaluation = _evaluate(inputs, encoder, done, best)
                if evaluation.best:
                    save_encoder(encoder, model_path(folder))
                    best = evaluation
                yield evaluation
            parts = type(terms)(*(part.detach() for part in terms))
            yield StepRecord(done, total, parts, learning_rate)
            # Behind the yields: what a checkpoint holds has reached the consumer.
            if done < total and time.monotonic() - saved > checkpoint_seconds:
                save(done)
                saved = time.monotonic()
    except GeneratorExit:
        if start < done < total:
            save(done)
        raise
    write_result(folder, Result(best, evaluation))
    remove_checkpoints(folder)


def untrained_scores(inputs: Inputs, device: torch.device | None = None) -> tuple[Score, ...]:
    """Dev scores of the encoder as it comes, with the recipe's pooling."""
    encoder = SentenceEncoder(inputs.model, inputs.recipe.model.pooling)
    return tuple(score_all(inputs.dev, encoder.to(device or default_device()).encode))


def _evaluate(
    inputs: Inputs, encoder: SentenceEncoder, step: int, best: Evaluation | None
) -> Evaluation:
    texts = (text for pairs in inputs.dev for text in pairs.texts)
    encode = encode_once(texts, encoder.encode)
    scores = tuple(score_all(inputs.dev, encode))
    shape = geometry.measure(inputs.dev[0], encode).metrics(inputs.dev[0].split)
    selected = next(s.value for s in scores if s.key == inputs.selection_key)
    previous = -math.inf if best is None or best.selected is None else best.selected
    improved = selected is not None and selected > previous
    return Evaluation(step, inputs.total_steps, scores, selected, improved, shape)


def _seed(seed: int, stream: int, step: int) -> None:
    """Seed torch for one purpose at one step, so that no draw depends on those before it."""
    state = np.random.SeedSequence([seed, stream, step]).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0]))
