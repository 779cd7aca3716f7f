"""The processor function: a tick, a shard's pass, a recovery, or the reconcile. What it does is in dynatick.engine."""

from __future__ import annotations

import logging
import os
import sys
from datetime import timedelta
from typing import Any

from dynatick import observability, wiring

logger, metrics = observability.create()
processor = wiring.build_processor(wiring.load_settings())


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics(raise_on_empty_metrics=False)
def run(event: dict[str, Any], context: Any) -> None:
    """Does what the event asks for."""
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    invoked = processor.handle(event, hard_end=wiring.utc_now() + left)
    observability.log_invocation(invoked, logger, metrics, wiring.utc_now())


def handler(event: dict[str, Any], context: Any) -> None:
    try:
        run(event, context)
    finally:
        if processor.running:
            end_process()


def end_process() -> None:
    """A thread that is frozen with this process would go on in a later invocation, after its lease: only the end of the
    process fences it (protocol 11), however the invocation ended. Its task comes back when the lease ends."""
    try:
        logger.error(
            "time is up with tasks still running: the process ends",
            extra={"action": "process_ended", "running": processor.running},
            exc_info=sys.exc_info()[1],
        )
        logging.shutdown()
    finally:
        os._exit(1)
