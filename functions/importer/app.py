"""The importer function: imports a file of tasks from the bucket; see dynatick.bulk."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dynatick import observability, wiring

logger, metrics = observability.create()
importer = wiring.build_importer(wiring.load_settings())


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics(raise_on_empty_metrics=False)
def handler(event: dict[str, Any], context: Any) -> None:
    """Imports as much of the file as time allows, and starts the invocation that continues."""
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    observability.log_import(importer.handle(event, hard_end=wiring.utc_now() + left), logger, metrics)
