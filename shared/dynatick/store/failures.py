"""The SDK's and pynamodb's errors, in our words. They go no further than the store."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.exceptions import PynamoDBException

from dynatick.errors import StoreError

SDK_ERRORS = (PynamoDBException, ClientError, BotoCoreError)


class translated:
    """Turns the SDK's and pynamodb's errors into StoreError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SDK_ERRORS):
            raise StoreError(f"cannot {self._what}: {error}") from error


def failure_code(error: BaseException) -> str:
    """The service's own code of an error, or its kind."""
    if isinstance(error, PynamoDBException):
        # Not by ``cause_response_code``, which raises for a connection that broke: its ``response`` is None.
        return type(error).__name__ if error.cause is None else failure_code(error.cause)
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "ClientError"))
    return type(error).__name__


def is_too_large(code: str | None, message: str) -> bool:
    """Whether a write was refused for the size of the item or of its index key, which no retry changes."""
    if code not in ("ValidationException", "ValidationError"):
        return False
    text = message.lower()
    return "size" in text and ("exceed" in text or "limit" in text or "less than" in text)
