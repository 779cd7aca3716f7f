"""The handlers of the fault tests: each execution is a line in the ledger."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.faults.ledger import DONE, TRIED, Execution, Ledger
from tests.sandbox.clock import SharedClock

from dynatick import HandlerContext, PermanentError, RetryableError, handler
from dynatick.domain.instants import format_instant

FOLDER = "DYNATICK_FAULTS_FOLDER"


@handler("note")
def note(plan: dict[str, Any], context: HandlerContext) -> None:
    """Does what its payload plans; of an empty one it is done at once.

    ``seconds``: works for so long first; with ``slowAttempts`` only so many times. ``failures``: fails so many times
    before it succeeds. ``permanent``: fails for good. ``kill``: kills its process.
    """
    folder = Path(os.environ[FOLDER])

    def write(what: str) -> None:
        Ledger(folder / "ledger").add(
            Execution(
                what=what,
                task_id=context.task_id,
                run=context.run,
                attempt=context.attempt,
                key=context.idempotency_key,
                pid=os.getpid(),
                at=format_instant(SharedClock(folder / "clock")()),
            )
        )

    if plan.get("kill"):
        write(TRIED)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal may end this thread a moment later
    if context.attempt <= plan.get("slowAttempts", context.attempt):
        time.sleep(plan.get("seconds", 0))
    if plan.get("permanent"):
        write(TRIED)
        raise PermanentError("as planned, for good")
    if context.attempt <= plan.get("failures", 0):
        write(TRIED)
        raise RetryableError(f"failure {context.attempt}, as planned")
    write(DONE)
