"""Which of the values that stand in rows are whole numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeGuard


def is_whole(value: object) -> TypeGuard[int | Decimal]:
    """An int, or a Decimal without a fraction. Truth values, floats, NaN and the infinities are none."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)
