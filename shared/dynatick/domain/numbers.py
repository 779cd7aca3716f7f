"""Numbers among the values of rows: whole ones, and those that DynamoDB stores."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TypeGuard

MAX_COUNT = 10**9
"""More than any counted attempt or run."""

MAX_DIGITS = 38
"""Of a number, without its trailing zeros (DynamoDB quotas)."""

_SMALLEST, _TOO_LARGE = Decimal("1E-130"), Decimal("1E+126")  # without their sign (DynamoDB quotas)


def is_whole(value: object) -> TypeGuard[int | Decimal]:
    """Whether the value is an int or a Decimal without fraction. Not a bool, float, NaN or infinity."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object, minimum: int) -> TypeGuard[int | Decimal]:
    """Whether the value is a whole number from ``minimum`` to MAX_COUNT."""
    return is_whole(value) and minimum <= value <= MAX_COUNT


def stored_number(value: int | float | Decimal) -> Decimal | None:
    """The number as DynamoDB stores it: a float exactly as Python writes it, no zeros beyond the 38 digits, no -0.

    Returns None for a number that DynamoDB refuses.
    """
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        return None
    if not number:
        return Decimal(0)
    # Not with abs(), which rounds.
    if not _SMALLEST <= number.copy_abs() < _TOO_LARGE:
        return None
    if (digits := len(number.as_tuple().digits)) > MAX_DIGITS:
        number = number.normalize(Context(prec=digits))
    return number if len(number.as_tuple().digits) <= MAX_DIGITS else None
