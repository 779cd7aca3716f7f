"""A dead-letter queue for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynatick.actions.dead_letter import message_of
from dynatick.actions.dead_letter_queue import MAX_RECEIVED, Message, MessageCounts
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


class MemoryDeadLetterQueue(MemoryDeadLetters):
    """The same with a reader: a dead-letter queue in memory whose messages can be received. They stay hidden until they
    are released."""

    def __init__(self, refuse: Callable[[DeadLetter], bool] | None = None) -> None:
        super().__init__(refuse)
        self.visible: list[Message] = []
        self.hidden: list[Message] = []
        self._sent = 0

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        before = len(self.letters)
        taken = super().send(letters)
        for letter in self.letters[before:]:
            self.put(message_of(letter))
        return taken

    def put(self, body: str) -> None:
        """Appends a message with any body."""
        self._sent += 1
        self.visible.append(Message(f"message-{self._sent}", f"receipt-{self._sent}", body))

    def receive(self) -> Sequence[Message]:
        received, self.visible = self.visible[:MAX_RECEIVED], self.visible[MAX_RECEIVED:]
        self.hidden += received
        return received

    def delete(self, messages: Sequence[Message]) -> Sequence[bool]:
        self.visible = [one for one in self.visible if one not in messages]
        self.hidden = [one for one in self.hidden if one not in messages]
        return [True] * len(messages)

    def release(self, messages: Sequence[Message]) -> None:
        self.visible += [one for one in self.hidden if one in messages]
        self.hidden = [one for one in self.hidden if one not in messages]

    def counts(self) -> MessageCounts:
        return MessageCounts(len(self.visible), len(self.hidden))
