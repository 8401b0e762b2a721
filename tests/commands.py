"""Commands of the project in processes of their own, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Any connection to another machine ends the process with this code.
NO_NETWORK = """
import os, socket, sys
def refuse(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
        sys.stderr.write(f"CONNECTED to {address}\\n"); sys.stderr.flush(); os._exit(99)
    return original(self, address)
original = socket.socket.connect
socket.socket.connect = refuse
"""


def command(module: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", module, *flags]


def run(
    environment: dict[str, str], tmp_path: Path, module: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(module, *flags),
        env=environment,
        cwd=tmp_path / "cwd",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def flags(model: Path, texts: Path, output: Path, steps: int = 12) -> list[str]:
    return [
        *("--model.name", str(model), "--output", str(output), "--projector.width", "64"),
        *("--corpus", str(texts / "corpus.txt"), "--dev", str(texts / "pairs.tsv")),
        *("--optim.batch-size", "8", "--optim.max-steps", str(steps), "--optim.lr", "1e-3"),
        *("--selection.every", "5"),
    ]
