"""What ran: command, commit, versions and device, recorded before the first step."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from scd_core.places import without_password

_PACKAGES = ("torch", "transformers", "numpy", "scipy", "datasets", "optuna", "ray", "mlflow")
# A value of such a flag, or inside an address, is nobody else's business.
_SECRET_FLAG = re.compile(r"(?i)--?\S*(token|passw|secret|api[-_]?key)[^=]*")
_ASKED_BY: ContextVar[str] = ContextVar("asked_by", default="")


@dataclass(frozen=True)
class Provenance:
    """Facts about this process; no host names and no secrets."""

    command: str
    commit: str
    """Git commit of the code, with "+changes" where the tree had any; "unknown" outside git."""
    versions: dict[str, str]
    device: str
    threads: int

    def tags(self) -> dict[str, str]:
        """As MLflow tags; those with its own prefix fill the columns Source and Version."""
        _, _, program = self.command.partition("python -m ")
        return {
            "mlflow.source.type": "LOCAL",
            "mlflow.source.name": program.split(" ")[0] or self.command,
            "mlflow.source.git.commit": self.commit.removesuffix("+changes"),
            "scd.command": self.command,
            "provenance.commit": self.commit,
            "provenance.device": self.device,
            "provenance.threads": str(self.threads),
            "provenance.versions": " ".join(f"{k}={v}" for k, v in self.versions.items()),
        }


def collect() -> Provenance:
    """The facts of this process, now."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        versions[name] = metadata.version(name)
    device = (
        f"cuda: {torch.cuda.get_device_name()}"
        if torch.cuda.is_available()
        else f"cpu: {platform.machine()}, {os.cpu_count()} cores"
    )
    return Provenance(command(), _commit(), versions, device, torch.get_num_threads())


@contextlib.contextmanager
def asked_by(command: str) -> Iterator[None]:
    """In a worker: what runs here is recorded as done by another process's command line."""
    before = _ASKED_BY.set(command)
    try:
        yield
    finally:
        _ASKED_BY.reset(before)


def command() -> str:
    """This process's command line as it can be typed again, secrets masked."""
    if asked := _ASKED_BY.get():
        return asked
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    start = ["python", "-m", spec.name] if spec else ["python", sys.argv[0]]
    return shlex.join([*start, *_masked(sys.argv[1:])])


def _masked(arguments: Sequence[str]) -> Iterator[str]:
    before = ""
    for argument in arguments:
        flag, given, _ = argument.partition("=")
        if given and _SECRET_FLAG.fullmatch(flag):
            yield f"{flag}=***"
        elif _SECRET_FLAG.fullmatch(before) and not argument.startswith("-"):
            yield "***"
        else:
            yield without_password(argument, "***@")
        before = argument


def _commit() -> str:
    checkout = Path(__file__).resolve().parents[1]

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(checkout), *args],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()

    try:
        # A package installed inside somebody else's checkout is not that checkout's commit.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != checkout:
            return "unknown"
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
