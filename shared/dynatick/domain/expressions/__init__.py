"""Schedule expressions: ``rate(…)``, ``at(…)`` and ``cron(…)`` as EventBridge Scheduler writes them.

:func:`parse_expression` parses a text strictly and returns a small frozen value; :func:`next_after` and
:func:`upcoming` compute its occurrences. Wall times are those of an IANA time zone (:func:`check_zone`), by the pinned
``tzdata`` and not by the system's, so that every machine computes the same. All instants are aware, in UTC.

- A wall time that the clock skips in spring has no occurrence; one that it shows twice in autumn has one, at the first.
- ``rate`` counts from its start, in periods of fixed length: a day is 24 hours.
- ``at`` and ``cron`` follow the wall clock; ``at`` ignores ``start`` and ``end``, as EventBridge Scheduler does.
- The next occurrence is always strictly later than the given instant.
"""

from dynatick.domain.expressions.model import At, Cron, Expression, Rate
from dynatick.domain.expressions.occurrence import (
    Occurrence,
    check_fires,
    check_zone,
    clock_warnings,
    never_fires,
    next_after,
    shortest_gap,
    upcoming,
)
from dynatick.domain.expressions.parse import parse_expression

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
