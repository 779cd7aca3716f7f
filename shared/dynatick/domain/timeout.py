"""``timeoutSeconds``: how long an attempt takes at the most, as a task or its handler declares. It reserves time."""

from __future__ import annotations

from dynatick.domain.numbers import is_whole
from dynatick.errors import InvalidInput

MAX_TIMEOUT_SECONDS = 900
"""No Lambda function runs longer."""

EXPECTED = f"expected a whole number of seconds from 1 to {MAX_TIMEOUT_SECONDS}"


def check_timeout(value: object, most: int | None = None) -> int:
    """From the attribute ``timeoutSeconds``. ``most``: what an invocation of the processor can serve; None: not known.
    Raises InvalidInput."""
    if not is_whole(value) or not 1 <= value <= MAX_TIMEOUT_SECONDS:
        raise InvalidInput("timeoutSeconds", value, EXPECTED)
    if most is not None and value > most:
        raise InvalidInput("timeoutSeconds", value, expected_within(most))
    return int(value)


def expected_within(most: int) -> str:
    """What would be right for a timeout that no invocation of the processor can serve."""
    return f"expected at most {most}, as long as an attempt can take here (the parameter ProcessorTimeoutSeconds)"
