"""Translates the errors of the SDK and of pynamodb, which the store does not pass on."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.exceptions import PynamoDBException

from dynatick.errors import StoreError

SDK_ERRORS = (PynamoDBException, ClientError, BotoCoreError)


class translated:
    """A context that turns errors of the SDK and of pynamodb into StoreError. ``what``: the operation."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SDK_ERRORS):
            raise StoreError(f"cannot {self._what}: {error}") from error


def failure_code(error: BaseException) -> str:
    """The service's error code, or the name of the error's type."""
    if isinstance(error, PynamoDBException):
        # Not ``cause_response_code``, which raises for a broken connection, whose ``response`` is None.
        return type(error).__name__ if error.cause is None else failure_code(error.cause)
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "ClientError"))
    return type(error).__name__


SENT_AGAIN = "the id is taken, and the request was sent more than once: it may have taken effect before"


def is_too_large(code: str | None, message: str) -> bool:
    """Whether a write was refused because the item or its index key is too large. A retry would fail too."""
    if code not in ("ValidationException", "ValidationError"):
        return False
    text = message.lower()
    return "size" in text and ("exceed" in text or "limit" in text or "less than" in text)
