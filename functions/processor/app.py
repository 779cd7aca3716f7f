"""The processor function: a tick, a shard's pass, a recovery, or the reconcile; see dynatick.engine."""

from __future__ import annotations

import logging
import os
import sys
from datetime import timedelta
from functools import partial
from typing import Any

from dynatick import observability, tracing, wiring
from dynatick.errors import ConfigurationError
from dynatick.whole_lines import whole_lines

logger, metrics = observability.create()
MAX_FLUSH_SECONDS = 2.0
try:
    processor = wiring.build_processor(wiring.load_settings(), partial(observability.log_overdue, logger=logger))
except ConfigurationError as error:
    observability.log_cannot_start(error, wiring.publish_problem(error), logger, metrics)
    raise


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics(raise_on_empty_metrics=False)
def run(event: dict[str, Any], context: Any) -> None:
    """Handles the event, and logs its result."""
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    invoked = processor.handle(event, hard_end=wiring.utc_now() + left)
    observability.log_invocation(invoked, logger, metrics, wiring.utc_now())
    if invoked.fault is not None:
        raise invoked.fault


def handler(event: dict[str, Any], context: Any) -> None:
    """Handles the event. Ends the process if a task still runs then."""
    try:
        with whole_lines():  # of handlers, which print beside the log and the metrics
            run(event, context)
    finally:
        if processor.running:
            end_process()
        tracing.flush(min(MAX_FLUSH_SECONDS, context.get_remaining_time_in_millis() / 2000))


def end_process() -> None:
    """Ends the process, whose threads would otherwise be frozen and continue in a later invocation, after their task
    leases have expired (protocol 11). When the lease of a task expires, it is reclaimed."""
    try:
        logger.error(
            "time is up with tasks still running: the process ends",
            extra={"action": "process_ended", "running": processor.running},
            exc_info=sys.exc_info()[1],
        )
        logging.shutdown()
    finally:
        os._exit(1)
