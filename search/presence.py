"""That a search is running, told to drivers elsewhere on the same MLflow store.

Drivers of one home exclude each other by a lock on a file. Those of other machines, or of other
homes, meet only in the store: each says there, every minute, that it is alive.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator

from scd_core import places
from scd_core.mlflow_client import TrackingError
from scd_core.run_info import RunInfo
from scd_core.tracking import Tracking
from search.plan import Plan

_HOME, _ALIVE = "scd.home", "scd.alive"
_BEAT_SECONDS = 60.0
_SETTLE_SECONDS = 2.0  # between opening a run and looking who else did
_SILENT_SECONDS = 300.0
"""After so long without a word, a driver is dead. Clocks of machines may differ by less."""


class Presence:
    """This driver, and those of other homes that could train the same points."""

    def __init__(self, plan: Plan, store: Tracking) -> None:
        """Makes an id for the home where it has none."""
        self._plan, self._store = plan, store
        self._beat = time.monotonic()
        file = places.searches() / "home"
        if not file.is_file():  # made whole under another name: a reader never finds half of it
            places.searches().mkdir(parents=True, exist_ok=True)
            fresh = file.with_name(f"home-{uuid.uuid4().hex}")
            fresh.write_text(uuid.uuid4().hex, encoding="ascii")
            with contextlib.suppress(FileExistsError):
                os.link(fresh, file)
            fresh.unlink()
        self._home = file.read_text(encoding="ascii")

    @property
    def tags(self) -> dict[str, str]:
        """Of the search's run, now."""
        return {_HOME: self._home, _ALIVE: f"{time.time():.0f}"}

    def refuse(self) -> None:
        """Before the search's run is opened: check that no other home has one of these points.

        Raises:
            ValueError: one has.
        """
        for run in self._alive():
            raise self._refusal(run)

    def settle(self, mine: str) -> None:
        """After it is opened: of homes that opened at once, one goes on.

        It is the one that was last to open the same run, or has the run with the smallest id.

        Raises:
            ValueError: it is another; ``mine``, if nobody else has it, is closed.
        """
        if self._store.address.startswith("http"):  # homes of one machine seldom share a file
            time.sleep(_SETTLE_SECONDS)
        for run in self._alive():
            if run.run_id < mine:
                self._store.finish(mine, "KILLED", {"scd.reason": "another home was first"})
            if run.run_id <= mine:
                raise self._refusal(run)

    def _refusal(self, run: RunInfo) -> ValueError:
        return ValueError(
            f"a search of this recipe and data, {run.tags.get('scd.search')}, is running from "
            f"another folder or machine (MLflow run {run.run_id}), and {self._plan.name} could "
            "train the same points; wait for it, or stop it. One that was killed counts as running "
            f"for {_SILENT_SECONDS / 60:.0f} minutes"
        )

    def beat(self, mine: str) -> None:
        """Called often: say at times that this driver is alive."""
        if time.monotonic() - self._beat > _BEAT_SECONDS:
            self._beat = time.monotonic()
            with contextlib.suppress(TrackingError):  # a server that is away for a while
                self._store.tag(mine, self.tags)

    def _alive(self) -> Iterator[RunInfo]:
        """Searches of this recipe and data that another home is running."""
        for run in self._store.find("search", scd__base=self._plan.base):
            elsewhere = run.tags.get(_HOME, self._home) != self._home
            silent = time.time() - float(run.tags.get(_ALIVE, "0"))
            if run.status == "RUNNING" and elsewhere and silent < _SILENT_SECONDS:
                yield run
