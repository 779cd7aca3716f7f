"""The api function: handles the requests of API Gateway; see dynatick.api."""

from __future__ import annotations

from typing import Any

from dynatick import observability, wiring

logger, metrics = observability.create()
api = wiring.build_api(wiring.load_settings())


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics(raise_on_empty_metrics=False)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Returns the response, in the gateway's payload format 2.0."""
    answer = api.handle(event, context)
    observability.log_request(answer, logger, metrics)
    return answer.response
