"""Brings each request of the gateway into the one form that the routes take, or refuses it.

API Gateway checks neither methods, paths, sizes, encodings nor JSON on a ``$default`` route. It passes a body on as
text or as base64, depending on the declared content type.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from dynatick.api.ids import normal_path
from dynatick.api.problems import Problem, Wrong
from dynatick.errors import InvalidInput, shown
from dynatick.json_reader import MAX_DEPTH, TooDeep, parse

MAX_BODY_BYTES = 5 * 1024 * 1024
"""The limit of a body. A function's event has at most 6 MB (Lambda quotas)."""

Event = dict[str, Any]


def path_of(event: Mapping[str, Any]) -> str:
    """The path in its normal form. Raises Problem."""
    try:
        return normal_path(str(event.get("rawPath") or "/"))
    except InvalidInput as error:
        detail = str(error)
        raise Problem(code="invalid-input", detail=detail, errors=[Wrong(detail, parameter="path")]) from error


def caller_of(event: Mapping[str, Any]) -> str | None:
    """Who asks: the ARN of who has signed the request, else the subject of the token; None: anybody may ask."""
    authorizer = event["requestContext"].get("authorizer") or {}
    arn = (authorizer.get("iam") or {}).get("userArn")
    subject = ((authorizer.get("jwt") or {}).get("claims") or {}).get("sub")
    return next((str(who) for who in (arn, subject) if who), None)


def normalised(event: Mapping[str, Any], path: str, *, takes_body: bool) -> Event:
    """The event with a normal path, and with a body that is text or absent. Raises Problem."""
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    body = _body(event, headers) if takes_body else None
    return {**event, "rawPath": path, "headers": headers, "body": body, "isBase64Encoded": False}


def json_body(text: str) -> dict[str, object]:
    """The JSON object of a body; numbers keep their digits. Raises Problem, InvalidInput."""
    try:
        value = parse(text)
    except TooDeep:
        raise InvalidInput("body", "a deeper value", f"expected at most {MAX_DEPTH} levels") from None
    except ValueError as error:  # also for a number with too many digits for Python
        reason = error.msg if isinstance(error, json.JSONDecodeError) else shown(str(error))
        at = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise Problem(code="malformed-body", detail=f"the body is not JSON: {reason}{at}") from None
    if not isinstance(value, dict):
        raise InvalidInput("body", value, "expected a JSON object")
    return value


def _body(event: Mapping[str, Any], headers: dict[str, str]) -> str | None:
    body = event.get("body")
    if not body:
        return None
    try:
        data = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except (binascii.Error, ValueError):  # a lone surrogate, if the gateway made one
        raise _not_utf8() from None
    if len(data) > MAX_BODY_BYTES:
        detail = f"the body has {len(data)} bytes; at most {MAX_BODY_BYTES} are accepted. Send several requests"
        raise Problem(code="body-too-large", detail=detail)
    declared = headers.get("content-type", "")
    kind = declared.partition(";")[0].strip().lower()
    # Also without a content type: another origin's page could send that without a preflight.
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        detail = f"Content-Type: {shown(declared)} is not accepted; expected application/json"
        raise Problem(code="unsupported-media-type", detail=detail, headers={"Accept-Post": "application/json"})
    headers["content-type"] = "application/json"  # the only one that the router accepts
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _not_utf8() from None


def _not_utf8() -> Problem:
    return Problem(code="malformed-body", detail="the body is not UTF-8")
