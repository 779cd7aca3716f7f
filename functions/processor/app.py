"""The processor function: a tick, one shard's pass, or the daily reconcile. What it does is in dynatick.engine."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any

from dynatick import observability, wiring

logger, metrics = observability.create()
processor = wiring.build_processor(wiring.load_settings())


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics(raise_on_empty_metrics=False)
def run(event: dict[str, Any], context: Any) -> int:
    """Does what the event asks for; returns how many tasks are still running, although time is up."""
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    invoked = processor.handle(event, hard_end=wiring.utc_now() + left)
    observability.tell_invocation(invoked, logger, metrics, wiring.utc_now())
    return invoked.passed.unfinished if invoked.passed else 0


def handler(event: dict[str, Any], context: Any) -> None:
    if run(event, context):
        # A thread that is frozen with this process could go on in a later invocation, after its lease: only the end
        # of the process fences it (protocol 11). What it worked on comes back when its lease ends.
        logging.shutdown()
        os._exit(1)
