"""What the project's commands share: recipe flags, one-line errors, clean interruption, tables."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from scd_core import places

console = Console()
errors = Console(stderr=True)


def early_flags(arguments: Sequence[str]) -> tuple[str | None, Path | None]:
    """``--preset`` and ``--recipe``, read before the other flags, whose defaults they set."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--preset")
    early.add_argument("--recipe", type=Path)
    chosen, _ = early.parse_known_args(arguments)
    return chosen.preset, chosen.recipe


def main(command: Callable[[Sequence[str]], int]) -> None:
    """Run a command on the process's arguments and exit with its code.

    Errors that a user can mend end in one message and code 2; an interruption in code 130.
    """
    quiet_libraries()
    if os.environ.get("MLFLOW_TRACKING_URI"):  # a relative one is another store to other folders
        os.environ["MLFLOW_TRACKING_URI"] = places.tracking_uri()
    try:
        code = command(sys.argv[1:])
    except (ValueError, OSError) as error:
        if os.environ.get("SCD_TRACEBACK"):
            raise
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        code = 2
    except KeyboardInterrupt:
        errors.print("interrupted")
        code = 130
    sys.exit(code)


def quiet_libraries() -> None:
    """No usage reports over the network, no thread pools that hang after a fork, plain logs."""
    for name, value in {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }.items():
        os.environ.setdefault(name, value)
    handler = RichHandler(console=errors, show_path=False, show_time=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    for name in ("mlflow", "alembic", "httpx", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # What it logs with a traceback, it also raises.
    logging.getLogger("mlflow.store.db").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ask, at a safe place, whether SIGINT or SIGTERM came. A second signal ends at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        errors.print("stopping after this step (again: stop now) ...")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def progress_bar() -> Progress:
    """A bar with count, elapsed and remaining time; on a pipe it stays silent until its end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=errors,
    )
