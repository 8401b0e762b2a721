"""Where training runs, and in which precision that pays there."""

from __future__ import annotations

import torch

from scd_core.settings import Precision

# Of torch.cpu.get_capabilities: bf16 matrix products in hardware, on x86 and on ARM.
_FAST_BF16 = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")


def default_device() -> torch.device:
    """The GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def resolve_precision(precision: Precision, device: torch.device) -> Precision:
    """What "auto" is on ``device``: bf16 where it has matrix products of bf16, else fp32.

    Told by what the processor says it can do and not by a measurement, so that a busy machine gives
    the same answer as an idle one.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # Older torch cannot be asked; fp32 is right everywhere.
        can: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        fast = any(can.get(name, False) for name in _FAST_BF16)
    return "bf16" if fast else "fp32"
