"""Limits by key: how many tasks of a key run at once, and how many begin in a second.

A *limit key* is a text such as ``customer:4711``. What stands before the colon names its class, and ``KeyLimits`` says
what holds for each key of a class: ``customer=1,host=4:10/s,mail=100/m``. A task with a key lies in the shard of its
key, so that one process sees all tasks of the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.errors import ConfigurationError, InvalidInput, shown

PARAMETER: Final = "KeyLimits"
MAX_BYTES: Final = 256
"""The limit for a key, in UTF-8."""

MAX_AT_ONCE: Final = 10_000
_LIMIT: Final = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_-]{0,63})=(?!:)"
    r"(?:(?P<at_once>[1-9][0-9]{0,4})(?![0-9/]))?(?::?(?P<number>(?<=[:=])[1-9][0-9]{0,5})/(?P<unit>[smh]))?"
)
_UNITS: Final = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}
_EXPECTED: Final = "expected one such as customer=1, host=4:10/s or mail=100/m"


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """What holds for each key of a class. ``at_once`` None: any number. ``interval``: from one start to the next;
    zero: none."""

    at_once: int | None = None
    interval: timedelta = timedelta()
    text: str = ""  # as it was written: 4:10/s


KeyLimits = Mapping[str, KeyLimit]
"""By class."""


def parse_limits(texts: Iterable[str], parameter: str = PARAMETER) -> KeyLimits:
    """``KeyLimits`` as it is written, one text for each class. Raises ConfigurationError."""
    found: dict[str, KeyLimit] = {}
    for text in texts:
        match = _LIMIT.fullmatch(text)
        at_once = int(match["at_once"] or 0) if match else 0
        if match is None or not (at_once or match["number"]):
            raise ConfigurationError(parameter, f"{shown(text)} is not a limit; {_EXPECTED}")
        if at_once > MAX_AT_ONCE:
            raise ConfigurationError(parameter, f"{shown(text)} is more at once than {MAX_AT_ONCE}")
        if match["name"] in found:
            raise ConfigurationError(parameter, f"the class {match['name']} is there twice")
        interval = -(-_UNITS[match["unit"]] // int(match["number"])) if match["number"] else timedelta()
        found[match["name"]] = KeyLimit(at_once or None, interval, text.partition("=")[2])
    return found


def class_of(key: str) -> str:
    """``customer`` of ``customer:4711``."""
    return key.partition(":")[0]


def check_limit_key(value: object, limits: KeyLimits | None = None) -> str:
    """A limit key: text of up to 256 bytes, a class, a colon, and what is limited. Raises InvalidInput.

    ``limits``: its class must be among these; None: they are not known.
    """
    if not isinstance(value, str):
        raise InvalidInput(attr.LIMIT_KEY, value, "expected text such as customer:4711")
    name, _, rest = value.partition(":")
    if not name or not rest or not value.isprintable():
        raise InvalidInput(attr.LIMIT_KEY, value, "expected a class, a colon and what is limited: customer:4711")
    if (size := len(value.encode())) > MAX_BYTES:
        raise InvalidInput(attr.LIMIT_KEY, value, f"expected at most {MAX_BYTES} bytes in UTF-8, this has {size}")
    if limits is not None and name not in limits:
        known = f"the classes are {', '.join(sorted(limits))}" if limits else "there are no classes"
        raise InvalidInput(attr.LIMIT_KEY, value, f"expected a class of the parameter {PARAMETER}: {known}")
    return value
