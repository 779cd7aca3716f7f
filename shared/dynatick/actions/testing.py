"""Stand-ins for tests, those of Dynatick and of its users."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynatick.engine.ports import DeadLetter


class MemoryDeadLetters:
    """A dead-letter queue in memory. ``refuse`` says which letters it does not take."""

    def __init__(self, refuse: Callable[[DeadLetter], bool] | None = None) -> None:
        self.letters: list[DeadLetter] = []
        self._refuse = refuse

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Keeps each in ``letters`` unless it is refused."""
        taken = [self._refuse is None or not self._refuse(letter) for letter in letters]
        self.letters += [letter for letter, kept in zip(letters, taken, strict=True) if kept]
        return taken
