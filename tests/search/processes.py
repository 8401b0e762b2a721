"""Searches as processes of their own, and all that they start."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def stub_command(
    home: Path, stub: str, seconds: float, *flags: str, errors: int = subprocess.STDOUT
) -> subprocess.Popen[str]:
    """``search.coarse_grid`` with stub trainings, as the first of its own process group."""
    script = str(Path(__file__).with_name("stub_command.py"))
    told = {"SCD_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(
        [sys.executable, script, stub, str(home / "log"), str(seconds), *flags],
        env=dict(os.environ) | told,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )


def processes_of(home: Path) -> list[int]:
    """Processes that inherited this home in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"SCD_HOME={home}\0".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def workers_of(home: Path) -> list[int]:
    """Those of them that are Ray's workers."""
    found = []
    for pid in processes_of(home):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                found.append(pid)
    return found
