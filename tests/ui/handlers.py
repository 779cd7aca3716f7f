"""The handlers of a seeded installation. They work on its clock, and fail as their payload says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.ui.clock import NOW, clock_at

from dynatick import CompleteLater, HandlerContext, PermanentError, RetryableError, task

clock = clock_at(NOW)
"""That of the installation that ticks now; its ``tick`` sets it."""

while_running: Callable[[], None] = lambda: None  # noqa: E731
"""Called in the middle of a task whose payload says so."""


def _work(seconds: float) -> None:
    clock.to(clock() + timedelta(seconds=seconds))


@dataclass(frozen=True)
class Mail:
    to: str
    text: str = "It is time"


@task("send-reminder", permanent=(ValueError,))
def send_reminder(mail: Mail) -> dict[str, object]:
    _work(0.012)
    if not mail.to.endswith("@example.com"):
        raise ValueError("no such mailbox")
    return {"characters": len(mail.text)}


@dataclass(frozen=True)
class Charge:
    order: str
    cents: int
    down_until: str = ""  # an instant: the bank does not answer before


@task("charge-card")
def charge_card(charge: Charge) -> dict[str, object]:
    _work(0.18)
    if charge.down_until and clock() < datetime.fromisoformat(charge.down_until):
        raise RetryableError("the bank answered 503")
    if charge.cents < 0:
        raise PermanentError(f"order {charge.order}: {charge.cents} cents is negative")
    return {"receipt": f"r-{charge.order}"}


@task("transcode")
def transcode(payload: dict[str, Any]) -> CompleteLater:
    _work(0.3)
    return CompleteLater(within=timedelta(hours=4))


@task("build-report")
def build_report(payload: dict[str, Any], context: HandlerContext) -> dict[str, object]:
    _work(float(payload.get("seconds", 1.4)))
    if payload.get("pauses"):
        while_running()
    if "error" in payload and context.run == 1:
        raise PermanentError(str(payload["error"]))
    return {"pages": 12}
