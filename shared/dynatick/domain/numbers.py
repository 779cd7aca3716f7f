"""Whole numbers among the values of rows."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeGuard


def is_whole(value: object) -> TypeGuard[int | Decimal]:
    """Whether the value is an int or a Decimal without fraction. Not a bool, float, NaN or infinity."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)
