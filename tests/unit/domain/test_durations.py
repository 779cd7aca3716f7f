"""Durations as they are shown; tests/unit/cli/test_arguments.py has how they are typed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON

from dynatick.domain.durations import exact_text, milliseconds_text, relative_text, rounded_text

DAY = 86_400_000


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"), (0.4, "0 ms"), (999.4, "999 ms"), (999.6, "1.0 s"), (1_000, "1.0 s"), (9_949, "9.9 s"),
        (9_951, "10 s"), (119_499, "119 s"), (119_501, "2 min"), (120_000, "2 min"), (7_169_999, "119 min"),
        (7_170_001, "2 h"), (7_200_000, "2 h"), (2 * DAY - 1_800_001, "47 h"), (2 * DAY - 1_799_999, "2 days"),
        (2 * DAY, "2 days"), (365 * DAY, "365 days"), (10**15 * DAY, f"{10**15} days"),
    ],
)  # fmt: skip
def test_a_length_is_rounded_and_never_a_full_next_unit(milliseconds: float, text: str) -> None:
    assert milliseconds_text(milliseconds) == text
    if milliseconds <= 365 * DAY:
        assert rounded_text(timedelta(milliseconds=milliseconds)) == text
        assert rounded_text(-timedelta(milliseconds=milliseconds)) == text


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0 s"), (timedelta(seconds=1), "1 s"), (timedelta(seconds=90), "90 s"),
        (timedelta(minutes=1), "1 min"), (timedelta(minutes=59), "59 min"), (timedelta(minutes=60), "1 h"),
        (timedelta(minutes=90), "90 min"), (timedelta(hours=23), "23 h"), (timedelta(hours=24), "1 day"),
        (timedelta(hours=36), "36 h"), (timedelta(hours=48), "2 days"), (timedelta(days=1, seconds=1), "86401 s"),
    ],
)  # fmt: skip
def test_an_interval_is_exact(length: timedelta, text: str) -> None:
    assert exact_text(length) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"), (0.999, "now"), (-0.999, "now"), (1, "in 1.0 s"), (-1, "1.0 s ago"), (12, "in 12 s"),
        (-300, "5 min ago"), (3 * 86_400, "in 3 days"),
    ],
)  # fmt: skip
def test_an_instant_is_so_far_from_now(seconds: float, text: str) -> None:
    assert relative_text(NOON + timedelta(seconds=seconds), NOON) == text
