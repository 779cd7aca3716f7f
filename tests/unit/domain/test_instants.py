"""Parsing and formatting of instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import no_such_time
from tests.unit.domain.strategies import instants
from tests.unit.domain.support import refusal

from dynatick.domain.instants import EXPECTED_INSTANT, format_instant, parse_instant, require_aware
from dynatick.errors import InvalidInput

NOON = datetime(2026, 12, 31, 12, 7, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=1))

ACCEPTED = [
    # RFC 3339; lower case; a space for the T, which the RFC allows; seconds missing; spaces around
    ("2026-12-31T12:07:00Z", NOON), ("2026-12-31t12:07:00z", NOON), ("2026-12-31 12:07:00Z", NOON),
    ("2026-12-31T12:07Z", NOON), ("  2026-12-31T12:07:00Z\n", NOON),
    ("2026-12-31T13:07:00+01:00", NOON), ("2026-12-31T13:07+01:00", NOON), ("2026-12-31T04:07:00-08:00", NOON),
    ("2026-12-31T17:52:00+05:45", NOON), ("2027-01-01T11:06:00+22:59", NOON),
    ("2026-12-31T12:07:00-00:00", NOON),  # "the offset is not known", says the RFC; the instant is
    ("2026-12-31T12:07:00.5Z", NOON + timedelta(microseconds=500_000)),
    ("2026-12-31T12:07:00.123456789Z", NOON + timedelta(microseconds=123_456)),  # finer than we count: cut off
    ("2027-01-01T00:30:00+01:00", datetime(2026, 12, 31, 23, 30, tzinfo=UTC)),  # another day, and year, in UTC
    ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)), (0, datetime(1970, 1, 1, tzinfo=UTC)),
    ("9998-12-31T23:59:59Z", datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC)),
    # epoch seconds
    (1_798_718_820, NOON), (1_798_718_820.0, NOON), (Decimal(1_798_718_820), NOON), (Decimal("1.79871882E+9"), NOON),
    (1_798_718_820.1, NOON + timedelta(microseconds=100_000)),  # and not a binary fraction less
    (Decimal("1798718820.123"), NOON + timedelta(microseconds=123_000)),
    # datetimes
    (NOON, NOON), (datetime(2026, 12, 31, 13, 7, tzinfo=BERLIN), NOON),
]  # fmt: skip


@pytest.mark.parametrize(("value", "instant"), ACCEPTED)
def test_an_instant_is_accepted_in_every_form(value: object, instant: datetime) -> None:
    found = parse_instant(value, "dueAt")
    assert found == instant
    assert found.utcoffset() == timedelta()


class Vague(tzinfo):
    """A time zone without an offset: such a datetime counts as naive."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None


NO_SUCH = "there is no such time ({}); " + EXPECTED_INSTANT
AWARE = "expected a datetime with a time zone, for instance datetime.now(UTC)"
OFFSET = "its offset from UTC is missing; " + EXPECTED_INSTANT

REASONS: dict[str, list[object]] = {
    # naive: the instant is unknown
    OFFSET: ["2026-12-31T12:07:00", "2026-12-31T12:07", "2026-12-31 12:07:00"],
    AWARE: [NOON.replace(tzinfo=None), NOON.replace(tzinfo=Vague())],
    # no such time
    NO_SUCH.format(no_such_time(2026, 12, 31, 24)): ["2026-12-31T24:00:00Z"],
    NO_SUCH.format(no_such_time(2027, 2, 29)): ["2027-02-29T12:00:00Z"],
    NO_SUCH.format(no_such_time(2016, 12, 31, 23, 59, 60)): ["2016-12-31T23:59:60Z"],  # a real leap second, even so
    NO_SUCH.format("an offset is at most 23:59"): [
        "2026-12-31T12:07:00+25:00", "2026-12-31T12:07:00+24:00", "2026-12-31T12:07:00-01:60",
    ],
    NO_SUCH.format("date value out of range"): ["0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00"],
    "expected a time between 1970 and 9998": [
        "1969-12-31T23:59:59Z", "1970-01-01T00:30:00+01:00", "9999-06-01T00:00:00Z", "9998-12-31T23:59:59-00:01",
        -1, Decimal("-0.001"), 253_402_300_799,  # the last second of 9999
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=BERLIN),
    ],
    EXPECTED_INSTANT: [
        # milliseconds, where seconds are meant
        1_798_718_820_000, 10**20, Decimal("1E+125"), float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity"),
        # no notation of ours; some of them Python's ``fromisoformat`` accepts
        "", "tomorrow", "2026-12-31", "2026-12-31T12Z", "20261231T120700Z", "2026-12-31T12:07:00 Z",
        "1798718820",  # a number as text may be anything
        "2026-12-31T12:07:00+0100", "2026-12-31T12:07:00+1", "2026-12-31T12:07:00.Z", "2026-12-31T12:07.5Z",
        "2026-12-31T12:07:00.1234567890Z", "2026-12-31T12:07:00[Europe/Berlin]", "+2026-12-31T12:07:00Z",
        "2026-W01-1T12:00:00Z", "2026-12-31T12:00:00,123Z",
        "２０２６-12-31T12:07:00Z",  # digits, but not ASCII's  # noqa: RUF001
        True, False, None, b"2026-12-31T12:07:00Z", [1_798_718_820], {"S": "2026-12-31T12:07:00Z"},
        {"2026-12-31T12:07:00Z"}, NOON.date(),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"), [(value, reason) for reason, values in REASONS.items() for value in values]
)
def test_any_other_form_is_refused_with_the_reason(value: object, expected: str) -> None:
    assert refusal(parse_instant, value, "dueAt") == ("dueAt", expected)


@pytest.mark.parametrize(
    ("instant", "text"),
    [(datetime(2026, 12, 31, 13, 7, tzinfo=BERLIN), "2026-12-31T12:07:00Z"),
     (NOON + timedelta(microseconds=250_000), "2026-12-31T12:07:00.250Z"),
     (NOON + timedelta(microseconds=1_999), "2026-12-31T12:07:00.001Z"),
     (NOON + timedelta(microseconds=999), "2026-12-31T12:07:00Z"),
     (datetime(7, 1, 1, tzinfo=UTC), "0007-01-01T00:00:00Z")],
)  # fmt: skip
def test_an_instant_as_text(instant: datetime, text: str) -> None:
    assert format_instant(instant) == text
    with pytest.raises(InvalidInput, match=r"^instant: "):
        format_instant(instant.replace(tzinfo=None))
    with pytest.raises(InvalidInput, match=r"^endDate: "):
        require_aware(instant.replace(tzinfo=None), "endDate")


@given(instants)
def test_text_is_read_as_it_was_written_to_the_millisecond(instant: datetime) -> None:
    text = format_instant(instant)
    assert parse_instant(text, "x") == instant.replace(microsecond=instant.microsecond // 1000 * 1000)
    assert format_instant(parse_instant(text, "x")) == text


@given(
    st.one_of(
        st.text(max_size=40), st.floats(), st.decimals(), st.integers(), st.binary(), st.booleans(), st.none(),
        st.from_regex(r"\A\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?\Z"), st.datetimes(),
    )
)  # fmt: skip
def test_any_value_is_parsed_or_refused(value: object) -> None:
    try:
        found = parse_instant(value, "dueAt")
    except InvalidInput as error:
        assert error.field == "dueAt"
    else:
        assert found.utcoffset() == timedelta()
        assert 1970 <= found.year <= 9999
