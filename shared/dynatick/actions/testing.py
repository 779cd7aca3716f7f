"""A dead-letter queue for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynatick.engine.ports import DeadLetter


class MemoryDeadLetters:
    """A dead-letter queue in memory. It refuses the letters for which ``refuse`` returns True."""

    def __init__(self, refuse: Callable[[DeadLetter], bool] | None = None) -> None:
        self.letters: list[DeadLetter] = []
        self._refuse = refuse

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Appends the letters to ``letters``, except the refused ones. Returns True for each that was appended."""
        taken = [self._refuse is None or not self._refuse(letter) for letter in letters]
        self.letters += [letter for letter, kept in zip(letters, taken, strict=True) if kept]
        return taken
