"""Addresses that lead to the same tomorrow: the range of a page as instants, and the name of the installation. Pure."""

from __future__ import annotations

from datetime import datetime

from dynatick.ui import batches, links, readings, tasks
from dynatick.ui.query import Query
from dynatick.ui.readings import DAY, HOUR, MINUTE
from dynatick.ui.zone import hour_of, midnight_of

_PARTS = ("page", "hops")  # of a list that is read on


def frozen(path: str, asked: Query, now: datetime) -> str:
    """The address of what a page shows now, by its path and what its address asks for. Raises InvalidInput."""
    kept = {key: value for key, value in asked.items() if key not in _PARTS}
    match path.strip("/").split("/"):
        case [""] | ["timeline"] if "from" not in asked:
            kept = {"span": asked.get("span", "day"), **_timeline(asked.get("span", "day"), now)}
            path = "/timeline"
        case ["failures", *_] if "to" not in asked:
            kept |= {"last": asked.get("last", "24h"), "to": links.minute(readings.hour_of(now) + HOUR)}
        case ["search"] if "at" not in asked:
            kept |= {"at": links.minute(_minute(now))}
        case ["changes"] if "to" not in asked:
            kept |= {"to": links.minute(_minute(now) + MINUTE)}
        case ["actions"] | ["ticks"] if "to" not in asked:
            default = "24h" if path == "/actions" else "6h"
            kept |= {"last": asked.get("last", default), "to": links.minute(_minute(now) + MINUTE)}
        case ["tasks"] | ["tasks", "change"] if tasks.is_timed(asked):
            kept = _between(kept, *tasks.range_of(asked, now))
        case ["batches"] if (found := batches.range_of(asked, now)) != (None, None):
            kept = _between(kept, *found)
    return links.with_query(path, kept)


def _timeline(span: str, now: datetime) -> dict[str, str]:
    match span:
        case "hour":
            return {"from": links.minute(hour_of(now))}
        case "week":
            return {"from": links.minute(midnight_of(now, -3))}
        case _:
            start = hour_of(now) - DAY + HOUR
            return {"from": links.minute(start), "to": links.minute(start + 2 * DAY)}


def _between(kept: dict[str, str], start: datetime | None, end: datetime | None) -> dict[str, str]:
    rest = {key: value for key, value in kept.items() if key not in ("from", "to", "last", "next")}
    return rest | {key: links.minute(_minute(at)) for key, at in (("from", start), ("to", end)) if at is not None}


def _minute(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0)
