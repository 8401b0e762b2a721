"""Where things lie on disk: one home for runs, caches and the MLflow store."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The absolute folder that holds everything the project writes.

    ``$SCD_HOME``, else the checkout this package runs from, else the working directory. It never
    depends on where a worker happens to run: commands resolve it once and hand on absolute paths.
    """
    if chosen := os.environ.get("SCD_HOME"):
        return Path(chosen).expanduser().resolve()
    checkout = Path(__file__).resolve().parents[1]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd().resolve()


def cache() -> Path:
    """Folder for what can be made again: cleaned corpora, token files, unpacked downloads."""
    return home() / "cache"


def runs() -> Path:
    """Folder of training runs, one folder each."""
    return home() / "runs"


def searches() -> Path:
    """Folder of searches, one folder each."""
    return home() / "searches"


def sqlite_file(uri: str) -> Path | None:
    """The database of such a store; None where it is another kind of store."""
    start = "sqlite:///"
    return Path(uri.removeprefix(start).partition("?")[0]) if uri.startswith(start) else None


def tracking_uri() -> str:
    """``$MLFLOW_TRACKING_URI``, else the SQLite store in ``home()`` by its absolute path."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"
