"""MLflow's client, set to keep to itself, with one kind of error."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

# MLflow reads these on import and otherwise reports usage over the network.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

from mlflow import MlflowClient

from scd_core.places import without_password


class TrackingError(ValueError):
    """MLflow's store cannot be reached, read or written; the message names it without password."""


class Client:
    """MLflow's client, with the many kinds of error that its stores raise turned into one."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client = self._guarded(MlflowClient)(uri)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._guarded(getattr(self._client, name))

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except Exception as error:
                reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
                text = f"MLflow at {self._uri} does not do it: {reason}"
                raise TrackingError(without_password(text)) from error

        return call


def require_server(host: str | None, port: int) -> None:
    """MLflow's client itself would retry for minutes before it says that nobody is there."""
    try:
        socket.create_connection((host or "", port), timeout=5).close()
    except OSError as error:
        raise TrackingError(
            f"no MLflow server answers at {host}:{port} ({error}); start it, or leave "
            "MLFLOW_TRACKING_URI unset to use a local store"
        ) from error
