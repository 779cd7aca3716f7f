"""Your handlers: what tasks do. The ones here are examples; put your own in their place.

A task names its handler in ``action``; how handlers get payloads, fail and are tested is in
docs/how-to/handlers.md.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dynatick import HandlerContext, PermanentError, RetryableError, handler

logger = logging.getLogger("dynatick.handlers")  # comes out like Dynatick's own logs


@dataclass(frozen=True)
class Reminder:
    to: str
    text: str


@handler("send-reminder")
def send_reminder(reminder: Reminder, context: HandlerContext) -> dict[str, object]:
    """Where a mail would be sent. A payload that is no Reminder never gets here: its task fails and says why."""
    if "@" not in reminder.to:
        raise PermanentError("to: expected a mail address")  # trying again would not help
    # The idempotency key is the same at each attempt: a mail service that knows keys sends one mail, not two.
    logger.info(
        "reminder due",
        extra={"action": "reminder_due", "task_id": context.task_id, "idempotency_key": context.idempotency_key},
    )
    return {"characters": len(reminder.text)}


@dataclass(frozen=True)
class Rehearsal:
    failures: int = 0
    retry_after_seconds: float | None = None


@handler("rehearse")
def rehearse(rehearsal: Rehearsal, context: HandlerContext) -> dict[str, object]:
    """Fails as many times as it is told, then succeeds: to see retries and dead letters before they are needed."""
    if context.attempt <= rehearsal.failures:
        raise RetryableError(
            f"failure {context.attempt} of {rehearsal.failures}, as rehearsed",
            retry_after=rehearsal.retry_after_seconds,
        )
    return {"attempts": context.attempt}
