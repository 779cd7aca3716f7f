"""The soak's action, which the processor's processes load as the user's handlers: each execution is in the journal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.soak.journal import Began, Ended
from tests.soak.plan import LIFE
from tests.soak.surroundings import Surroundings

from dynatick import HandlerContext, PermanentError, RetryableError, handler

ACTION = "soak"


@cache
def _surroundings() -> Surroundings:
    return Surroundings.from_env(os.environ)


@handler(ACTION)
def soak(plan: Mapping[str, Any], context: HandlerContext) -> None:
    """Does what its payload plans; of an empty one it is done at once.

    ``seconds``: works for so long. ``hangs``: outlasts its invocation once. ``failures``: fails so many times first.
    ``permanent``: fails for good. ``kill``: kills its process.
    """
    life = str(plan.get("life", context.task_id))
    who: dict[str, Any] = {
        "pid": os.getpid(),
        "task_id": context.task_id,
        "life": life,
        "run": context.run,
        "attempt": context.attempt,
    }
    due, here = context.due_at.timestamp(), _surroundings()
    here.journal.add(Began(**who, key=context.idempotency_key, due_at=due, at=here.clock().timestamp()))
    if plan.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()  # the signal may end this thread a moment later
    if plan.get("hangs") and context.attempt == 1:
        time.sleep(1.5 * LIFE / here.clock.speed)
    time.sleep(float(plan.get("seconds", 0)))
    permanent, again = bool(plan.get("permanent")), context.attempt <= plan.get("failures", 0)
    here.journal.add(Ended(**who, done=not permanent and not again, at=here.clock().timestamp()))
    if permanent:
        raise PermanentError("as planned, for good")
    if again:
        raise RetryableError(f"failure {context.attempt}, as planned")
