"""The HTTP API as one callable: an event of API Gateway (payload format 2.0) in, its answer out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError

from dynatick.api import batches, buckets, bulk, dead_letters, installation, schedules, simple, tasks, ticks
from dynatick.api.limits import MAX_WAIT_SECONDS, Seconds, Waiting
from dynatick.api.problems import Problem, invalid, problem_of
from dynatick.api.requests import caller_of, json_body, normalised, path_of
from dynatick.api.routes import Operation, Routes, Table
from dynatick.client import TaskClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, with what the log needs."""

    response: dict[str, Any]
    method: str
    route: str  # as in the document; empty if there is none
    request_id: str
    code: str | None = None  # of a problem

    @property
    def status(self) -> int:
        return int(self.response["statusCode"])


class Api:
    """The routes over a client. Not thread-safe: a process of Lambda has one request at a time. Records of
    changes name the caller of the request.

    ``seconds``: a monotonic clock, which limits the time of long answers. ``pause`` waits for a number of seconds.
    ``max_wait_seconds``: how long a request may wait for the end of a task.
    """

    def __init__(
        self,
        client: TaskClient,
        *,
        seconds: Seconds = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        max_wait_seconds: int = MAX_WAIT_SECONDS,
    ) -> None:
        client = copy(client)
        client.caller, client.interface = lambda: self._caller, "HTTP"
        self._caller: str | None = None
        self.table = Table(operations(client, Waiting(seconds, pause, max_wait_seconds)))
        self.resolver = APIGatewayHttpResolver(enable_validation=True, json_body_deserializer=json_body)
        self.table.register(self.resolver)
        self.resolver.exception_handler(Exception)(self._problem)
        self._request_id = ""
        self._code: str | None = None
        self._operation: Operation | None = None

    def handle(self, event: Mapping[str, Any], context: Any) -> Answer:
        """Answers any request. Raises nothing."""
        http = event["requestContext"]["http"]
        method = str(http["method"]).upper()
        self._request_id = str(event["requestContext"].get("requestId") or getattr(context, "aws_request_id", ""))
        self._caller = caller_of(event)
        self._code = self._operation = None
        try:
            path = path_of(event)
            self._operation = self.table.find(method, path)
            response: dict[str, Any]
            if self._operation is not None:
                request = normalised(event, path, takes_body=self._operation.has_body)
                response = self.resolver.resolve(request, context)
            elif method == "OPTIONS" and (possible := self.table.methods_of(path)):
                response = self._build(_options(possible))
            else:
                raise self._unknown(method, path)
        except Exception as error:  # unexpected: the answer has only the request's id
            response = self._build(self._problem(error))
        response.setdefault("headers", {})
        response["headers"] |= {"X-Request-Id": self._request_id, "Cache-Control": "no-store"}
        route = self._operation.path if self._operation else ""
        return Answer(response, method, route, self._request_id, self._code)

    def _unknown(self, method: str, path: str) -> Problem:
        """The problem of a request without an operation: an unknown path or method."""
        allowed = ", ".join(self.table.methods_of(path))
        if not allowed:
            return Problem(code="not-found", detail=f"there is no {path[:200]}; paths begin with /v1")
        detail = f"{method[:20]} is not possible here; {allowed} is"
        return Problem(code="method-not-allowed", detail=detail, headers={"Allow": allowed})

    def _problem(self, error: Exception) -> Response[str]:
        parameters = self._operation.parameters if self._operation else frozenset()
        if isinstance(error, RequestValidationError):
            problem = invalid(error.errors())
        else:
            known = problem_of(error, parameters)
            problem = known or Problem(code="internal", detail="the request could not be served; the log says why")
        if problem.status >= 500 and problem.code != "unhealthy":  # an answer of health, not an error
            logger.error(
                "a request could not be served",
                extra={"action": "request_failed", "request_id": self._request_id},
                exc_info=error,
            )
        self._code = problem.code
        return problem.to_response(self._request_id)

    @staticmethod
    def _build(response: Response[str]) -> dict[str, Any]:
        return {
            "statusCode": response.status_code,
            "body": response.body,
            "isBase64Encoded": False,
            "headers": dict(response.headers),
        }


def _options(possible: list[str]) -> Response[str]:
    """The answer to a browser's preflight. The gateway adds the headers that allow an origin (``ApiCorsOrigins``)."""
    return Response(status_code=204, body="", headers={"Allow": ", ".join(sorted([*possible, "OPTIONS"]))})


def operations(client: TaskClient, waiting: Waiting) -> list[Operation]:
    """All operations, in the order of the document."""
    kinds: list[type[Routes]] = [
        tasks.Tasks, bulk.Bulk, schedules.ScheduleRoutes, batches.BatchRoutes, buckets.Buckets,
        dead_letters.DeadLetterRoutes, ticks.Ticks, installation.Installation, simple.Simple,
    ]  # fmt: skip
    return [operation for kind in kinds for operation in kind(client, waiting).operations()]
