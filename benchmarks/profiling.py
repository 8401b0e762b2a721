"""Where the time of a step goes, by class of operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

# torch's names without "aten::"; a name with its "_backward" belongs to the same class.
CLASSES = {
    "matrix products": ("mm", "addmm"),
    "attention products": (
        "bmm",
        "baddbmm",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_efficient_attention_forward",
        "_flash_attention_forward",
    ),
    "dropout": ("bernoulli_", "random_", "ge", "addcmul", "native_dropout"),
    "casts and copies": ("copy_", "index_copy_", "index_select", "index_add_", "cat", "fill_"),
    "GELU": ("gelu",),
    "LayerNorm": ("native_layer_norm",),
    "BatchNorm": ("native_batch_norm", "cudnn_batch_norm"),
    "softmax": ("_softmax", "_softmax_backward_data"),
    "optimiser, clipping": (
        "_fused_adamw_",
        "linalg_vector_norm",
        "addcdiv_",
        "addcmul_",
        "lerp_",
        "sqrt",
        "_foreach_norm",
        "_foreach_mul_",
    ),
    "embeddings": ("embedding", "embedding_dense", "index"),
}
_KINDS = {
    f"aten::{name}{suffix}": kind
    for kind, names in CLASSES.items()
    for name in names
    for suffix in ("", "_backward")
}


def profile_of(step: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Shares of the processor's or the GPU's time in ``step`` by class of operation, largest first.

    What has no class is elementwise arithmetic and bookkeeping.
    """
    gpu = device.type == "cuda"
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if gpu else []
    with torch.profiler.profile(activities=kinds) as profile:
        step()
        if gpu:
            torch.cuda.synchronize()
    spent: dict[str, float] = defaultdict(float)
    for event in profile.key_averages():
        if gpu and not event.key.startswith("aten::"):
            continue  # the kernels by their own names, counted with their operation already
        own = event.self_device_time_total if gpu else event.self_cpu_time_total
        spent[_KINDS.get(event.key, "others")] += own
    total = sum(spent.values()) or 1.0
    return {kind: v / total for kind, v in sorted(spent.items(), key=lambda item: -item[1])}
