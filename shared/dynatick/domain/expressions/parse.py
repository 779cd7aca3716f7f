"""Parses expressions strictly; errors have the position of the wrong character."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache

from dynatick.domain import attributes as attr
from dynatick.domain.expressions.model import FIRST_YEAR, LAST_YEAR, At, Expression, InvalidExpression, Rate
from dynatick.errors import InvalidInput

EXPRESSION_FIELD = attr.SCHEDULE_EXPRESSION

_FORMS = "rate(5 minutes), at(2026-12-31T12:00:00) or cron(0 12 * * ? *)"
_MAX_LENGTH = 256  # as in EventBridge Scheduler
_LONGEST = timedelta(days=36_525)

_CALL = re.compile(r"(rate|at|cron)\((.*)\)", re.ASCII | re.DOTALL)
_RATE = re.compile(r"\s*(\S+)\s+(\S+)\s*", re.ASCII)
_AT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)", re.ASCII)
_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


def parse_expression(value: object, field: str = EXPRESSION_FIELD) -> Expression:
    """The expression in a text.

    Raises InvalidInput, with position (characters are counted from 1) and reason, for a text that EventBridge Scheduler
    does not accept, and for a cron that matches no day from 1970 to 2199. Whether the expression has an occurrence
    after some instant, :func:`~dynatick.domain.expressions.check_fires` checks.
    """
    if not isinstance(value, str):
        raise InvalidInput(field, value, f"expected {_FORMS}")
    try:
        return _parse(value)
    except InvalidExpression as error:
        raise InvalidInput(field, value, str(error)) from None


@lru_cache(maxsize=1024)
def _parse(text: str) -> Expression:
    if len(text) > _MAX_LENGTH:
        raise InvalidExpression(f"an expression has at most {_MAX_LENGTH} characters")
    match = _CALL.fullmatch(text)
    if match is None:
        raise _no_form(text)
    inner, offset = match[2], match.start(2)
    if match[1] == "rate":
        return _rate(inner, offset)
    if match[1] == "at":
        return _at(inner, offset)
    # Imported here, to keep the cold start of a function without a cron fast.
    from dynatick.domain.expressions.cron import parse_cron

    return parse_cron(inner, offset)


def _no_form(text: str) -> InvalidExpression:
    """The error for a text of no known form, with the form that is probably right."""
    from dynatick.domain.expressions.cron import parse_cron
    from dynatick.domain.expressions.unix import answer_to_unix

    bare = text.strip()
    if bare != text and _CALL.fullmatch(bare):
        return InvalidExpression(f"there is white space around it; write {bare}")
    if re.match(r"(rate|at|cron)\s*\(", bare, re.IGNORECASE) and bare.endswith(")"):
        name, inner = bare[:-1].split("(", 1)
        return InvalidExpression(
            f"the name is written in small letters, without a space; write {name.strip().lower()}({inner})"
        )
    if re.match(r"(rate|at|cron)\(", bare):
        return InvalidExpression("the closing bracket is missing or something follows it", len(text) - 1)
    answer = answer_to_unix(bare)
    if answer is not None:
        return InvalidExpression(answer)
    if len(bare.split()) == 6:
        try:
            return InvalidExpression(f"the brackets are missing; write {parse_cron(bare, 0).text}")
        except InvalidExpression as error:
            return error
    return InvalidExpression(f"expected {_FORMS}")


def _rate(inner: str, offset: int) -> Rate:
    match = _RATE.fullmatch(inner)
    if match is None:
        raise InvalidExpression("a rate is a number and a unit, such as rate(5 minutes)", offset)
    number, unit = match.groups()
    if not re.fullmatch(r"[1-9]\d*", number, re.ASCII):
        reason = f"{number!r} is not a whole number from 1 on, such as 5 in rate(5 minutes)"
        raise InvalidExpression(reason, offset + match.start(1))
    count, singular = int(number), unit.removesuffix("s")
    if singular not in _UNITS or unit not in (singular, f"{singular}s"):
        hint = " (seconds are not supported)" if singular == "second" else ""
        reason = f"{unit!r} is not one of minute, minutes, hour, hours, day, days{hint}"
        raise InvalidExpression(reason, offset + match.start(2))
    right = singular if count == 1 else f"{singular}s"
    if unit != right:
        raise InvalidExpression(f"{count} goes with {right!r}; write rate({count} {right})", offset + match.start(2))
    if count > _LONGEST // _UNITS[singular]:
        raise InvalidExpression("that is longer than a hundred years", offset + match.start(1))
    return Rate(f"rate({count} {unit})", count * _UNITS[singular])


def _at(inner: str, offset: int) -> At:
    match = _AT.fullmatch(inner)
    if match is None:
        reason = "expected yyyy-mm-ddThh:mm:ss, without an offset: scheduleExpressionTimezone has the zone"
        raise InvalidExpression(reason, offset)
    try:
        local = datetime(*(int(part) for part in match.groups()))  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError as error:
        raise InvalidExpression(f"there is no such time ({error})", offset) from None
    if not FIRST_YEAR <= local.year <= LAST_YEAR:
        raise InvalidExpression(f"the year is not from {FIRST_YEAR} to {LAST_YEAR}", offset)
    return At(f"at({inner})", local)
