"""The URLs of the pages. An id is one URL-encoded segment; one that would be none, such as ``..``, gets a ``~``."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote, unquote, urlencode

from dynatick.domain.instants import format_instant

_OTHERS = (".", "..", "change", "selected", "rows")  # which are no ids in a path
INSTALLATION = ("stack", "region", "account")
"""The parameters with the installation that an address is of: the name of its table or stack, and where that is."""

_MARK = "~"
_OWN_URL = re.compile(r'(\s(?:href|hx-get|action)=")(/(?!static/)[^"]*)')


def task(task_id: str, part: str = "") -> str:
    """The page of a task, or a part of it."""
    return f"/tasks/{segment(task_id)}{part and '/' + part}"


def schedule(schedule_id: str, part: str = "") -> str:
    return f"/schedules/{segment(schedule_id)}{part and '/' + part}"


def action(name: str, part: str = "", **filters: object) -> str:
    """The page of an action, or a change of it."""
    return with_query(f"/actions/{segment(name)}{part and '/' + part}", filters)


def batch(batch_id: str, part: str = "", **filters: object) -> str:
    """The page of a batch, or a part of it."""
    return with_query(f"/batches/{segment(batch_id)}{part and '/' + part}", filters)


def bucket(name: str, **filters: object) -> str:
    return with_query(f"/buckets/{segment(name)}", filters)


def tasks(**filters: object) -> str:
    return with_query("/tasks", filters)


def failures(**filters: object) -> str:
    return with_query("/failures", filters)


def failure(fingerprint: str, part: str = "", **filters: object) -> str:
    """The page of a group of failures, or a part of it."""
    return with_query(f"/failures/{segment(fingerprint)}{part and '/' + part}", filters)


def search(text: str) -> str:
    return with_query("/search", {"q": text})


def job(job_id: str) -> str:
    return f"/jobs/{segment(job_id)}"


def timeline(span: str, start: datetime | None = None) -> str:
    return with_query("/timeline", {"span": span, "from": start and minute(start)})


def minute(value: datetime) -> str:
    """An instant in a URL, in UTC: ``2026-12-31T12:00Z``."""
    value = value.astimezone(UTC)
    return f"{value:%Y-%m-%dT%H:%MZ}" if not value.second and not value.microsecond else format_instant(value)


def with_query(path: str, values: Mapping[str, object]) -> str:
    """A URL with parameters, without those that are None or empty."""
    query = urlencode({name: str(value) for name, value in values.items() if value not in (None, "")})
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


def keeping(text: str, parameters: Mapping[str, str]) -> str:
    """HTML, with parameters that the URLs of its links, parts and forms get, unless they have them."""
    if not parameters:
        return text

    return _OWN_URL.sub(lambda found: found[1] + html.escape(with_missing(html.unescape(found[2]), parameters)), text)


def with_missing(url: str, parameters: Mapping[str, str]) -> str:
    """A URL with parameters, but for those that it has."""
    address, mark, fragment = url.partition("#")
    missing = {name: value for name, value in parameters.items() if not re.search(rf"[?&]{name}=", address)}
    return f"{with_query(address, missing)}{mark}{fragment}"


def pairs(values: Sequence[tuple[str, str]]) -> str:
    """Parameters of a URL, of which one may come several times."""
    return urlencode(values)


def segment(text: str) -> str:
    """A text as one segment of a path. Browsers would resolve ``..``; ``change`` and the like are pages of ours."""
    return quote(f"{_MARK}{text}" if text in _OTHERS or text.startswith(_MARK) else text, safe=":@")


def of_segment(segment: str) -> str:
    """The text of a segment."""
    return unquote(segment).removeprefix(_MARK)
