"""The API against its own document: whatever is sent, it answers with what the document says, and never fails.

The requests are made from the document, good ones and bad ones, always the same; they go through the application that
serves the API locally, over the in-memory store.
"""

from __future__ import annotations

from datetime import datetime

import hypothesis
import schemathesis
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.builders import NOON, FakeClock
from tests.unit.api.support import Caller

from dynatick.api.waiting import MAX_WAIT_SECONDS
from dynatick.engine.cursor import read_cursor
from dynatick_stack.api import Application


class StoppedClock(FakeClock):
    """However long the tests before this one take: an installation whose last tick was long ago isn't healthy."""

    def __call__(self) -> datetime:
        return NOON


def application() -> Application:
    """With a task in each state, so that not all is not-found."""
    caller = Caller(clock=StoppedClock())
    caller.publish_settings()
    for n in range(3):
        caller.client.insert(f"welcome-4{n}", task_date_time="2026-12-31#12:00")
    caller.client.cancel("welcome-41")
    caller.dead_letters.put('{"taskId": "welcome-41", "run": 1, "failedAt": "2026-12-31T12:00:00Z"}')
    caller.dead_letters.put("no letter")
    read_cursor(caller.store, 0, caller.clock())  # as a tick leaves it: without one, the health is that of a fault
    for schedule_id in ("nightly-report", "nightly"):
        caller.client.schedules.insert(schedule_id, "cron(0 3 * * ? *)", timezone="Europe/Berlin")
    return Application(caller.client)


SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", application(), headers={"Host": "127.0.0.1"})


@SCHEMA.parametrize()
@hypothesis.settings(max_examples=40, derandomize=True, deadline=None, database=None)
def test_whatever_is_sent_is_answered_as_the_document_says(case: Case) -> None:
    # Left out: that whatever fits its form is accepted. A form can't say that one of three times may be given, that an
    # instant needs its offset, or that an action must be known.
    case.call_and_validate(
        base_url="http://127.0.0.1", excluded_checks=[positive_data_acceptance], timeout=3 * MAX_WAIT_SECONDS
    )
