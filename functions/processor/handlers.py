"""Your handlers: the functions that tasks run. These are examples; replace them with your own.

A task names its handler in ``action``. docs/how-to/handlers.md describes payloads, errors and tests of handlers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dynatick import HandlerContext, PermanentError, RetryableError, task

logger = logging.getLogger("dynatick.handlers")  # logs in the same format as Dynatick


@dataclass(frozen=True)
class Reminder:
    to: str
    text: str


@task("send-reminder")
def send_reminder(reminder: Reminder, context: HandlerContext) -> dict[str, object]:
    """An example that would send a mail. A task whose payload is not a Reminder fails before the call."""
    if "@" not in reminder.to:
        raise PermanentError("to: expected a mail address")  # a retry would fail too
    # The same key at each attempt, so that a mail service with idempotency keys sends one mail.
    logger.info(
        "reminder due",
        extra={"action": "reminder_due", "task_id": context.task_id, "idempotency_key": context.idempotency_key},
    )
    return {"characters": len(reminder.text)}


@dataclass(frozen=True)
class Rehearsal:
    failures: int = 0
    retry_after_seconds: float | None = None


@task("rehearse")
def rehearse(rehearsal: Rehearsal, context: HandlerContext) -> dict[str, object]:
    """Fails ``failures`` times, then succeeds, to try out retries and dead letters."""
    if context.attempt <= rehearsal.failures:
        raise RetryableError(
            f"failure {context.attempt} of {rehearsal.failures}, as rehearsed",
            retry_after=rehearsal.retry_after_seconds,
        )
    return {"attempts": context.attempt}
