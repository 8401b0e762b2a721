"""Where things lie: one home for runs, caches and the MLflow store, and addresses of stores."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PASSWORD = re.compile(r"(?<=://)[^/\s]+@")  # to the last @, as a password may hold some


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


def without_password(text: str, shown: str = "") -> str:
    """The text with ``shown`` in place of any user and password in its addresses."""
    return _PASSWORD.sub(shown, text)


def tracking_uri() -> str:
    """``$MLFLOW_TRACKING_URI``, else the SQLite store in ``home()``; a file by absolute path."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"
    file, (_, mark, options) = sqlite_file(uri), uri.partition("?")
    if file is None or file.is_absolute():
        return uri
    return f"sqlite:///{file.resolve()}{mark}{options}"
