"""The dead-letter queue as its readers see it: messages are received, and then deleted or released.

A received message is hidden from other readers until it is released, or until ``HIDDEN_SECONDS`` have passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

MAX_RECEIVED = 10
"""Messages in one call, the maximum of SQS."""

HIDDEN_SECONDS = 120
"""Long enough to read 10,000 messages, short enough that messages of a reader that died are soon visible again."""

MAX_TEXT_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Message:
    """A received message."""

    message_id: str
    receipt: str  # to delete or release it by
    body: str


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """How many messages there are, by SQS's estimate."""

    visible: int
    hidden: int  # received by a reader, and neither deleted nor released yet


class DeadLetterQueue(Protocol):
    """A queue of dead letters."""

    def receive(self) -> Sequence[Message]:
        """Up to ``MAX_RECEIVED`` messages, which are hidden from then on. None: there are no more to be seen.

        Raises QueueError."""

    def delete(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Deletes messages. Returns for each whether the queue has confirmed it. Raises nothing."""

    def release(self, messages: Sequence[Message]) -> None:
        """Makes messages visible again. Raises nothing: they become so by themselves after a while."""

    def counts(self) -> MessageCounts:
        """Raises QueueError."""


def letter_value(value: object) -> object:
    """A row's value as a letter has it: short, since the letter must always fit. The row may be malformed."""
    if isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite()):
        return value
    # Not str() for other types: it raises for boto3's Binary.
    return (str(value) if isinstance(value, (str, Decimal)) else ascii(value))[:MAX_TEXT_CHARACTERS]
