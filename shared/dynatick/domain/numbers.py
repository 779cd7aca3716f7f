"""Whole numbers among the values of rows."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeGuard

MAX_COUNT = 10**9
"""More than any counted attempt or run."""


def is_whole(value: object) -> TypeGuard[int | Decimal]:
    """Whether the value is an int or a Decimal without fraction. Not a bool, float, NaN or infinity."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object, minimum: int) -> TypeGuard[int | Decimal]:
    """Whether the value is a whole number from ``minimum`` to MAX_COUNT."""
    return is_whole(value) and minimum <= value <= MAX_COUNT
