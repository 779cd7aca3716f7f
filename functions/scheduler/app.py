"""The scheduler function: gives every row of the stream its place. What it does is in dynatick.engine.scheduler."""

from __future__ import annotations

from typing import Any

from dynatick import observability, wiring

logger, metrics = observability.create()
scheduler = wiring.build_scheduler(wiring.load_settings())


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics(raise_on_empty_metrics=False)
def handler(event: dict[str, Any], context: Any) -> dict[str, list[dict[str, str]]]:
    """A partial batch response: Lambda sends all records again from the first one that failed."""
    assigned = scheduler.handle(event)
    observability.log_assigned(assigned, logger, metrics)
    return {"batchItemFailures": [{"itemIdentifier": key} for key, _ in assigned.failed]}
