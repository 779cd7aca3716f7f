"""Queues within one invocation: nothing waits for one that has refused or has not answered before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from dynatick.engine.ports import DeadLetter, DeadLetters, WakeUps


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


class WakeUpsUntilRefused:
    """Sends wake-ups until the queue takes none of those in a call. What is sent afterwards counts as not sent at once:
    the tick runs it. Safe for use by many threads."""

    def __init__(self, queue: WakeUps) -> None:
        self._queue = queue
        self._is_refused = False

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        """As the queue does: returns how many were not sent."""
        if self._is_refused or not wake_ups:
            return len(wake_ups)
        unsent = self._queue.send(wake_ups)
        if unsent == len(wake_ups):
            self._is_refused = True
        return unsent
