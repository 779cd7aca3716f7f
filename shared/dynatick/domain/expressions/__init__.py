"""Schedule expressions: ``rate(…)``, ``at(…)`` and ``cron(…)`` as EventBridge Scheduler writes them.

An expression is read once (:func:`parse_expression`), strictly; after that it is a small frozen value from which the
runs follow (:func:`next_after`, :func:`upcoming`). Wall time is that of an IANA zone (:func:`check_zone`), by the
pinned ``tzdata`` and never by the system's, so that every machine says the same. All instants are aware, in UTC.

- A wall time that a clock skips in spring does not run; one that it shows twice in autumn runs once, the first time.
- ``rate`` counts from its start, in periods of fixed length: a day is 24 hours.
- ``at`` and ``cron`` follow the wall clock; ``at`` ignores ``start`` and ``end``, as EventBridge Scheduler does.
- The next run is strictly later than the instant that is asked about, always.
"""

from dynatick.domain.expressions.jumps import clock_warnings
from dynatick.domain.expressions.model import At, Cron, Expression, Rate
from dynatick.domain.expressions.parse import parse_expression
from dynatick.domain.expressions.runs import (
    Occurrence,
    check_fires,
    never_fires,
    next_after,
    shortest_gap,
    upcoming,
)
from dynatick.domain.expressions.zones import check_zone

__all__ = [
    "At",
    "Cron",
    "Expression",
    "Occurrence",
    "Rate",
    "check_fires",
    "check_zone",
    "clock_warnings",
    "never_fires",
    "next_after",
    "parse_expression",
    "shortest_gap",
    "upcoming",
]
