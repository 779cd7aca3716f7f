"""Translates the five fields of a Unix crontab into cron expressions, for error messages."""

from __future__ import annotations

import re

_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MACROS = {
    "@yearly": "cron(0 0 1 1 ? *)",
    "@annually": "cron(0 0 1 1 ? *)",
    "@monthly": "cron(0 0 1 * ? *)",
    "@weekly": "cron(0 0 ? * SUN *)",
    "@daily": "cron(0 0 * * ? *)",
    "@midnight": "cron(0 0 * * ? *)",
    "@hourly": "cron(0 * * * ? *)",
}
_DAY = re.compile(r"(\*|[0-7]|[A-Z]{3})(?:-([0-7]|[A-Z]{3}))?(?:/(\d+))?", re.ASCII)


def answer(text: str) -> str | None:
    """The message for a Unix cron expression, with its translation; None for any other text."""
    from dynatick.domain.expressions.cron import parse_cron
    from dynatick.domain.expressions.invalid_expression import InvalidExpression

    known = _MACROS.get(text.lower())
    if known is not None:
        return f"that is Unix cron; write {known}"
    fields = text.upper().split()
    if len(fields) != 5 or "?" in text:
        return None
    translated = _translate(*fields)
    try:
        texts = [parse_cron(inner, 0).text for inner in translated]
    except InvalidExpression:
        return None
    if len(texts) == 2:
        return (
            "that is Unix cron, where either day is enough; here one of them is '?', "
            f"so write two schedules: {texts[0]} and {texts[1]}"
        )
    return f"that is Unix cron; write {texts[0]}" if texts else None


def _translate(minutes: str, hours: str, day: str, month: str, weekday: str) -> list[str]:
    """The texts for the brackets of one cron expression or two; none if it can't be translated."""
    if weekday == "*":
        return [f"{minutes} {hours} {day} {month} ? *"]
    days = _weekdays(weekday)
    if days is None:
        return []
    by_weekday = f"{minutes} {hours} ? {month} {days} *"
    return [by_weekday] if day == "*" else [f"{minutes} {hours} {day} {month} ? *", by_weekday]


def _weekdays(text: str) -> str | None:
    """Weekdays 0-7, where 0 and 7 are Sunday, as names; steps become lists."""
    parts: list[str] = []
    for part in text.split(","):
        match = _DAY.fullmatch(part)
        if match is None:
            return None
        low, high, step = match.groups()
        first = 0 if low == "*" else _number(low)
        last = 6 if low == "*" else first if high is None else _number(high)
        if first is None or last is None or (low == "*" and high):
            return None
        if step is None:
            parts.append("*" if low == "*" else _DAYS[first] if high is None else f"{_DAYS[first]}-{_DAYS[last]}")
            continue
        if int(step) < 1 or (high is None and low != "*"):
            return None
        parts.extend(_DAYS[number] for number in range(first, last + 1, int(step)))
    return ",".join(dict.fromkeys(parts)) or None


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else _DAYS.index(text) if text in _DAYS else None
