"""Dead letters within one invocation: none waits for a queue that has refused or has not answered before."""

from __future__ import annotations

from collections.abc import Sequence

from dynatick.engine.ports import DeadLetter, DeadLetters


class LettersUntilRefused:
    """Sends letters until the queue takes none of those in a call: each refusal may take seconds. What is sent
    afterwards counts as refused at once; a later tick sends it. Safe for use by many threads."""

    def __init__(self, queue: DeadLetters) -> None:
        self._queue = queue
        self.is_refused = False

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """As the queue does: one result for each letter, in order."""
        if self.is_refused or not letters:
            return [False] * len(letters)
        taken = self._queue.send(letters)
        if not any(taken):
            self.is_refused = True
        return taken
