"""``timeoutSeconds``: the longest that an attempt takes, declared by a task or its handler."""

from __future__ import annotations

from dynatick.domain import attributes as attr
from dynatick.domain.numbers import is_whole
from dynatick.errors import InvalidInput

MAX_TIMEOUT_SECONDS = 900
"""The limit of a Lambda function."""

EXPECTED = f"expected a whole number of seconds from 1 to {MAX_TIMEOUT_SECONDS}"


def check_timeout(value: object, maximum: int | None = None) -> int:
    """The seconds of a ``timeoutSeconds``. ``maximum``: the longest that the processor can serve; None: not known.
    Raises InvalidInput."""
    if not is_whole(value) or not 1 <= value <= MAX_TIMEOUT_SECONDS:
        raise InvalidInput(attr.TIMEOUT_SECONDS, value, EXPECTED)
    if maximum is not None and value > maximum:
        raise InvalidInput(attr.TIMEOUT_SECONDS, value, expected_within(maximum))
    return int(value)


def expected_within(maximum: int) -> str:
    """The expectation for a timeout that is longer than the processor can serve."""
    return f"expected at most {maximum}, as long as an attempt can take here (the parameter ProcessorTimeoutSeconds)"
