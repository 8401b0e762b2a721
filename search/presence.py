"""That a search is running, told to drivers elsewhere on the same MLflow store.

Drivers of one home exclude each other by a lock on a file. Those of other machines, or of other
homes, meet only in the store: each says there, every minute, that it is alive.
"""

from __future__ import annotations

import contextlib
import time
import uuid

from scd_core import places
from scd_core.tracking import RunInfo, Tracking, TrackingError
from search.plan import Plan

_HOME, _ALIVE = "scd.home", "scd.alive"
_BEAT_SECONDS = 60.0
_SILENT_SECONDS = 300.0
"""After so long without a word, a driver is dead. Clocks of machines may differ by less."""


class Presence:
    """This driver, and those of other homes that could train the same points."""

    def __init__(self, plan: Plan, store: Tracking) -> None:
        """Makes an id for the home where it has none."""
        self._plan, self._store = plan, store
        self._beat = time.monotonic()
        file = places.searches() / "home"
        places.searches().mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), file.open("x", encoding="ascii") as fresh:
            fresh.write(uuid.uuid4().hex)
        self._home = file.read_text(encoding="ascii")

    @property
    def tags(self) -> dict[str, str]:
        """Of the search's run, now."""
        return {_HOME: self._home, _ALIVE: f"{time.time():.0f}"}

    def refuse(self, mine: str | None = None) -> None:
        """Check that no other home is searching this recipe and data.

        To be called before the search's run is opened, and after it with its id: of two that open
        theirs at once, the one with the smaller id goes on.

        Raises:
            ValueError: one is.
        """
        for run in self._store.find("search", scd__base=self._plan.base):
            if self._alive(run) and (mine is None or run.run_id < mine):
                raise ValueError(
                    f"a search of this recipe and data, {run.tags.get('scd.search')}, is running "
                    f"from another folder or machine (MLflow run {run.run_id}), and "
                    f"{self._plan.name} could train the same points; wait for it, or stop it. One "
                    f"that was killed counts as running for {_SILENT_SECONDS / 60:.0f} minutes"
                )

    def beat(self, mine: str) -> None:
        """Called often: say at times that this driver is alive."""
        if time.monotonic() - self._beat > _BEAT_SECONDS:
            self._beat = time.monotonic()
            with contextlib.suppress(TrackingError):  # a server that is away for a while
                self._store.tag(mine, self.tags)

    def _alive(self, run: RunInfo) -> bool:
        elsewhere = run.tags.get(_HOME, self._home) != self._home
        silent = time.time() - float(run.tags.get(_ALIVE, "0"))
        return run.status == "RUNNING" and elsewhere and silent < _SILENT_SECONDS
