"""From text to an expression: strict, and with the position of what is wrong."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache

from dynatick.domain.expressions.model import FIRST_YEAR, LAST_YEAR, At, Expression, Rate
from dynatick.domain.expressions.refusal import Refused
from dynatick.errors import InvalidInput

EXPRESSION_FIELD = "scheduleExpression"

_FORMS = "rate(5 minutes), at(2026-12-31T12:00:00) or cron(0 12 * * ? *)"
_MAX_LENGTH = 256  # as EventBridge Scheduler has it
_LONGEST = timedelta(days=36_525)

_CALL = re.compile(r"(rate|at|cron)\((.*)\)", re.ASCII | re.DOTALL)
_RATE = re.compile(r"\s*(\S+)\s+(\S+)\s*", re.ASCII)
_AT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)", re.ASCII)
_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


def parse_expression(value: object, field: str = EXPRESSION_FIELD) -> Expression:
    """The expression that a text is.

    Raises InvalidInput, which names the position (characters are counted from 1) and the reason: for anything that
    EventBridge Scheduler does not take, and for a cron that no day from 1970 to 2199 satisfies. Whether it still
    runs after some instant, in some zone, is for :func:`~dynatick.domain.expressions.check_fires` to say.
    """
    if not isinstance(value, str):
        raise InvalidInput(field, value, f"expected {_FORMS}")
    try:
        return _parse(value)
    except Refused as refused:
        raise InvalidInput(field, value, str(refused)) from None


@lru_cache(maxsize=1024)
def _parse(text: str) -> Expression:
    if len(text) > _MAX_LENGTH:
        raise Refused(f"an expression has at most {_MAX_LENGTH} characters")
    match = _CALL.fullmatch(text)
    if match is None:
        raise _no_form(text)
    inner, offset = match[2], match.start(2)
    if match[1] == "rate":
        return _rate(inner, offset)
    if match[1] == "at":
        return _at(inner, offset)
    # Imported when it is needed: a Lambda function without a cron does not pay for it at its cold start.
    from dynatick.domain.expressions.cron import parse_cron

    return parse_cron(inner, offset)


def _no_form(text: str) -> Refused:
    """Why the text is none of the forms, with the form that was probably meant."""
    from dynatick.domain.expressions import unix
    from dynatick.domain.expressions.cron import parse_cron

    bare = text.strip()
    if bare != text and _CALL.fullmatch(bare):
        return Refused(f"there is white space around it; write {bare}")
    if re.match(r"(rate|at|cron)\s*\(", bare, re.IGNORECASE) and bare.endswith(")"):
        name, inner = bare[:-1].split("(", 1)
        return Refused(f"the name is written in small letters, without a space; write {name.strip().lower()}({inner})")
    if re.match(r"(rate|at|cron)\(", bare):
        return Refused("the closing bracket is missing or something follows it", len(text) - 1)
    answer = unix.answer(bare)
    if answer is not None:
        return Refused(answer)
    if len(bare.split()) == 6:
        try:
            return Refused(f"the brackets are missing; write {parse_cron(bare, 0).text}")
        except Refused as refused:
            return refused
    return Refused(f"expected {_FORMS}")


def _rate(inner: str, offset: int) -> Rate:
    match = _RATE.fullmatch(inner)
    if match is None:
        raise Refused("a rate is a number and a unit, such as rate(5 minutes)", offset)
    number, unit = match.groups()
    if not re.fullmatch(r"[1-9]\d*", number, re.ASCII):
        reason = f"{number!r} is not a whole number from 1 on, such as 5 in rate(5 minutes)"
        raise Refused(reason, offset + match.start(1))
    count, singular = int(number), unit.removesuffix("s")
    if singular not in _UNITS or unit not in (singular, f"{singular}s"):
        hint = " (seconds are not to be had)" if singular == "second" else ""
        reason = f"{unit!r} is not one of minute, minutes, hour, hours, day, days{hint}"
        raise Refused(reason, offset + match.start(2))
    right = singular if count == 1 else f"{singular}s"
    if unit != right:
        raise Refused(f"{count} goes with {right!r}; write rate({count} {right})", offset + match.start(2))
    if count > _LONGEST // _UNITS[singular]:
        raise Refused("that is longer than a hundred years", offset + match.start(1))
    return Rate(f"rate({count} {unit})", count * _UNITS[singular])


def _at(inner: str, offset: int) -> At:
    match = _AT.fullmatch(inner)
    if match is None:
        reason = "expected yyyy-mm-ddThh:mm:ss, without an offset: the zone stands in scheduleExpressionTimezone"
        raise Refused(reason, offset)
    try:
        local = datetime(*(int(part) for part in match.groups()))  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError as error:
        raise Refused(f"there is no such time ({error})", offset) from None
    if not FIRST_YEAR <= local.year <= LAST_YEAR:
        raise Refused(f"the year is not from {FIRST_YEAR} to {LAST_YEAR}", offset)
    return At(f"at({inner})", local)
