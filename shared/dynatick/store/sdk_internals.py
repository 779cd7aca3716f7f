"""All that Dynatick uses of pynamodb and botocore although their documentation does not promise it, with the reason.

``tests/unit/store/test_sdk_internals.py`` fails when a release changes any of it. Besides what is defined here:

- ``add_recursion_detection_header``, ``get_cert_path``, ``get_environ_proxies``, and the parts of a request
  (``AWSRequest``, ``AWSResponse``, ``SigV4Auth``): ``wire`` sends requests without botocore's model of the service, and
  leaves to botocore what it can.
- The event ``before-send``, by which ``wire`` lets others see and answer its requests, ``dynamodb`` counts the tries of
  an insert, and ``actions.aws_client`` closes idle connections; that one uses ``response-received`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ConnectTimeoutError, ReadTimeoutError
from botocore.handlers import add_recursion_detection_header
from botocore.httpsession import get_cert_path
from botocore.session import Session
from botocore.utils import get_environ_proxies
from pynamodb.connection import TableConnection
from pynamodb.expressions.operand import Path

from dynatick.store.large import is_large, read_answer

__all__ = [
    "AttributeName",
    "add_recursion_detection_header",
    "get_cert_path",
    "get_environ_proxies",
    "is_of_dynamodb",
    "limit_unanswered",
    "refuse_other_answers",
    "register_large_reader",
    "use_session",
]


class AttributeName(Path):
    """An attribute by its literal name. Overrides ``Path._serialize_value``, because in pynamodb's Path dots and
    brackets refer to parts of maps and lists."""

    def __init__(self, name: str) -> None:
        super().__init__([name])

    def _serialize_value(
        self, value: list[str], placeholder_names: dict[str, str], expression_attribute_values: dict[str, str]
    ) -> str:
        return placeholder_names.setdefault(value[0], f"#{len(placeholder_names)}")


def use_session(connection: TableConnection, session: Session) -> None:
    """Has this thread's client made from the session. pynamodb takes none, and keeps one of its own for each thread in
    ``Connection._local``; the client that it makes serves all threads."""
    connection.connection._local.session = session


def register_large_reader(client: Any) -> None:
    """Registers ``read_answer`` for large answers to the client's own requests, instead of botocore's parser, which
    takes much time and memory for them. The event ``before-parse`` is there for botocore itself."""
    client.meta.events.register("before-parse.dynamodb.*", _read_large, unique_id="dynatick-large")


class NotDynamoDB(BotoCoreError):
    """Something else answered, such as a web server."""

    fmt = "the answer is not DynamoDB's, but {kind}: check the endpoint"


def is_of_dynamodb(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").startswith("application/x-amz-json")


def refuse_other_answers(client: Any) -> None:
    """Has the client raise NotDynamoDB for a success that is not DynamoDB's: of any text, botocore makes an answer
    without values."""
    client.meta.events.register("before-parse.dynamodb.*", _refuse_other, unique_id="dynatick-other")


def _refuse_other(response_dict: dict[str, Any], **_: object) -> None:
    if response_dict["status_code"] == 200 and not is_of_dynamodb(response_dict["headers"]):
        raise NotDynamoDB(kind=response_dict["headers"].get("content-type") or "without a type")


def limit_unanswered(client: Any, tries: Callable[[str], int]) -> None:
    """Has the client send a request that gets no answer only so often, by its operation. Answers that say to try again
    are tried as often as ever. The event ``needs-retry`` is there for botocore's own retries; an error that is raised
    in it is the request's."""

    def stop(operation: Any, attempts: int, caught_exception: Exception | None, **_: object) -> None:
        if isinstance(caught_exception, ConnectTimeoutError | ReadTimeoutError) and attempts >= tries(operation.name):
            raise caught_exception

    client.meta.events.register_first("needs-retry.dynamodb.*", stop, unique_id="dynatick-unanswered")


def _read_large(
    operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """Handles ``before-parse``, and puts the decoded answer into ``customized_response_dict``."""
    operation, content = operation_model.name, response_dict["body"]
    if response_dict["status_code"] == 200 and is_large(operation, content):
        try:
            customized_response_dict.update(read_answer(operation, content))
        except ValueError:  # botocore reports the error
            return
        response_dict["body"] = b"{}"
