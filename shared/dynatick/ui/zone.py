"""The time zone of the pages, by choice of their URL: ``?tz=Europe/Berlin``; UTC, if it names none. Instants are shown
and entered in it; between them, and in URLs, they are UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, time, timedelta, tzinfo

from dynatick.domain.expressions.occurrence import check_zone, zone_of
from dynatick.domain.instants import parse_instant
from dynatick.errors import InvalidInput

PARAMETER = "tz"

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
_chosen: ContextVar[tzinfo] = ContextVar("dynatick_ui_zone", default=UTC)


@contextmanager
def zone(name: str | None) -> Iterator[None]:
    """Shows times in a zone, in this request. Raises InvalidInput."""
    before = _chosen.set(UTC if name in (None, "", "utc") else zone_of(check_zone(name, PARAMETER)))
    try:
        yield
    finally:
        _chosen.reset(before)


def zone_name() -> str:
    """``UTC``, ``Europe/Berlin``."""
    chosen = _chosen.get()
    return "UTC" if chosen is UTC else str(chosen)


def parameters() -> dict[str, str]:
    """What the links of a page have so that their pages are in the same zone."""
    return {} if _chosen.get() is UTC else {PARAMETER: zone_name()}


def local(value: datetime) -> datetime:
    """An instant in the zone. Calculate with UTC only: Python counts local hours, of which some do not exist."""
    return value.astimezone(_chosen.get())


def comes_twice(value: datetime) -> bool:
    """Whether the local time of an instant has another instant, too: clocks go back."""
    shown = local(value)
    return shown.replace(fold=0).utcoffset() != shown.replace(fold=1).utcoffset()


def written(value: datetime, form: str) -> str:
    """An instant in the zone, in a form of ``strftime``. With its offset if the time comes twice."""
    text = local(value).strftime(form)
    return f"{text} {_offset(local(value))}" if "%H" in form and comes_twice(value) else text


def in_zone(text: str) -> str:
    """A sentence with the instants that it has, such as 2026-12-31T12:00:00Z, in the zone."""
    if _chosen.get() is UTC:
        return text
    return _INSTANT.sub(lambda found: _written_instant(parse_instant(found[0], "instant")), text)


def of_local(text: str, name: str) -> datetime:
    """The instant of a local time such as ``2026-12-31T12:00``. Raises InvalidInput, also if clocks skip it, or if it
    comes twice."""
    naive = parse_instant(f"{text}Z", name).replace(tzinfo=None)
    chosen = _chosen.get()
    both = [naive.replace(tzinfo=chosen, fold=fold).astimezone(UTC) for fold in (0, 1)]
    found = sorted({one for one in both if one.astimezone(chosen).replace(tzinfo=None) == naive})
    if len(found) == 1:
        return found[0]
    if found:
        offsets = " and ".join(_offset(one.astimezone(chosen)) for one in found)
        raise InvalidInput(
            name, text, f"expected a time that comes once: in {zone_name()} clocks go back, and this one comes with "
            f"the offsets {offsets}; enter {' or '.join(f'{one:%H:%M}' for one in found)} in UTC",
        )  # fmt: skip
    skipped = " and ".join(f"{one.astimezone(chosen):%H:%M}" for one in sorted(both))
    raise InvalidInput(
        name, text, f"expected a time that exists: in {zone_name()} clocks go forward and skip it, between {skipped}"
    )


def hour_of(value: datetime) -> datetime:
    """The instant at which the local hour of an instant begins."""
    shown = local(value)
    return value.astimezone(UTC) - timedelta(minutes=shown.minute, seconds=shown.second, microseconds=shown.microsecond)


def midnight_of(value: datetime, days: int = 0) -> datetime:
    """The instant at which the local day of an instant begins, or one that is ``days`` later."""
    day = local(value).date() + timedelta(days=days)
    return datetime.combine(day, time(), _chosen.get()).astimezone(UTC)


def days_later(value: datetime, days: int) -> datetime:
    """Of a local midnight, another one: days of 23 and 25 hours included. Of another instant, 24 hours each."""
    return midnight_of(value, days) if midnight_of(value) == value else value + timedelta(days=days)


def _written_instant(value: datetime) -> str:
    shown = local(value)
    text = f"{shown:%Y-%m-%d %H:%M:%S}"
    return f"{text} {_offset(shown)}" if comes_twice(value) else f"{text} {zone_name()}"


def _offset(shown: datetime) -> str:
    """``+02:00``."""
    text = f"{shown:%z}"
    return f"{text[:3]}:{text[3:5]}"
