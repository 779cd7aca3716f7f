"""Answers for whoever writes a Unix crontab's five fields: the same thing as EventBridge Scheduler writes it."""

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
    """What to write instead of a Unix expression; None if the text does not look like one, or means nothing."""
    from dynatick.domain.expressions.cron import parse_cron
    from dynatick.domain.expressions.refusal import Refused

    known = _MACROS.get(text.lower())
    if known is not None:
        return f"that is Unix cron; write {known}"
    fields = text.upper().split()
    if len(fields) != 5 or "?" in text:
        return None
    translated = _translate(*fields)
    try:
        texts = [parse_cron(inner, 0).text for inner in translated]
    except Refused:
        return None
    if len(texts) == 2:
        return (
            "that is Unix cron, where either day is enough; here one of them is '?', "
            f"so write two schedules: {texts[0]} and {texts[1]}"
        )
    return f"that is Unix cron; write {texts[0]}" if texts else None


def _translate(minutes: str, hours: str, day: str, month: str, weekday: str) -> list[str]:
    """What stands between the brackets: of one expression, of two, or of none."""
    if weekday == "*":
        return [f"{minutes} {hours} {day} {month} ? *"]
    days = _weekdays(weekday)
    if days is None:
        return []
    by_weekday = f"{minutes} {hours} ? {month} {days} *"
    return [by_weekday] if day == "*" else [f"{minutes} {hours} {day} {month} ? *", by_weekday]


def _weekdays(text: str) -> str | None:
    """0-7, where 0 and 7 are Sunday, in names; steps become lists."""
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
