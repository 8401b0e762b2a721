"""Commands to run next, made of the one that was given."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from search.analysis import Edge

_OF_ONE_STAGE = ("--around.", "--depth", "--sampler", "--max-trials", "--confirm", "--dry-run")
"""Flags that mean another thing, or nothing, in the stage before."""


def wider(command: str, edge: Edge) -> str:
    """A search's command with the edge moved; under no name, since that means the search as it was.

    A later stage then starts from the newest search before it, whatever its name.
    """
    flag, *values = edge.flags.split()
    return shlex.join([*_without(shlex.split(command), "--name", flag), flag, *values])


def stage_before(stage: str, preset: str, arguments: Sequence[str]) -> str:
    """The command of an earlier stage on the same recipe and data.

    Args:
        preset: In use, which may have been chosen by machine.
        arguments: Of the later stage's command.
    """
    module = "refine" if stage.startswith("refine") else stage
    depth = stage.removeprefix("refine") if stage.startswith("refine") else ""
    shared = _without(arguments, "--preset", *_OF_ONE_STAGE)
    start = ["python", "-m", f"search.{module}_grid", "--preset", preset]
    return shlex.join([*start, *shared, *(["--depth", depth] if depth else [])])


def _without(arguments: Sequence[str], *flags: str) -> list[str]:
    """The arguments less some flags and their values; one that ends in a dot is a whole group."""
    kept, left_out = list[str](), False
    for argument in arguments:
        if argument.startswith("--"):
            flag = argument.partition("=")[0].replace("_", "-")
            left_out = any(flag == f or (f.endswith(".") and flag.startswith(f)) for f in flags)
        if not left_out:
            kept.append(argument)
    return kept
