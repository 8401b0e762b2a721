"""SIGINT and SIGTERM while a search runs: noticed once, at a safe place, and ignored after that."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Interrupted(KeyboardInterrupt):
    """A signal asked to stop; ``number`` is which."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As shells report it: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.number


class Interrupts:
    """Holds back signals so that the books can be closed between two writes and not within one.

    Used as a context; restores the handlers it found. Only the main thread can have it.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        self._before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def listen(self) -> None:
        """Install the handlers; again after a library has put its own in their place."""
        for number in self._before:
            signal.signal(number, self._note)

    def check(self) -> None:
        """The safe place.

        Raises:
            Interrupted: a signal came since the start.
        """
        if self._number is not None:
            raise Interrupted(self._number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._number = self._number or number
