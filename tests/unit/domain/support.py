"""What several modules of tests ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dynatick.errors import InvalidInput


def refusal(check: Callable[..., object], *values: object) -> tuple[str, str]:
    """The field that is refused, and what is expected of it."""
    with pytest.raises(InvalidInput) as caught:
        check(*values)
    return caught.value.field, caught.value.expected
