"""Tasks: those of a bucket or a range, filtered, and changed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dynatick.client import BucketCounts, HistoryPage, ManyResult, TaskClient, WouldChange
from dynatick.client.change_records import counted_in
from dynatick.domain.buckets import Bucket, instant_of
from dynatick.domain.selection import STATUSES, Selection
from dynatick.errors import InvalidInput
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change, record_of
from dynatick.ui.jobs import REDRIVEN
from dynatick.ui.query import Query
from dynatick.ui.site import SLOWLY, TICK, Site, query_of, site_of

CHANGES = {
    "redrive": REDRIVEN, "cancel": "cancelled", "reschedule": "rescheduled", "restore": "restored",
    "run-now": "set to run",
}  # fmt: skip
_CHANGEABLE = {
    "failed": ("redrive",), "cancelled": ("restore", "run-now"),
    "scheduled": ("run-now", "cancel", "reschedule"), "unscheduled": ("run-now", "cancel", "reschedule"),
}  # fmt: skip
_RANGE = ("from", "to", "last", "next")
_PAGE = 50
_LONGEST = timedelta(days=31)
_MAX_HOPS = 4  # pages without a task after which the next one isn't read by itself
_FOLLOWED = 180  # minutes of tasks that a page reads again after each tick
_MAX_COUNTED = 10_000  # by a dry run
_MAX_EXAMPLES = 10


def _selection(site: Site, asked: Query) -> Selection:
    """The tasks that a page shows, as in its URL: of a ``bucket``, or of a range, and filters. Raises InvalidInput."""
    bucket = query.bucket(asked["bucket"]) if "bucket" in asked else None
    start, end = range_of(asked, site.clock()) if is_timed(asked) else (None, None)
    return site.client.select(
        bucket,
        start=start,
        end=end,
        status=asked.get("status"),
        action=asked.get("action"),
        schedule_id=asked.get("schedule"),
        subject=asked.get("subject"),
        prefix=asked.get("prefix"),
    )


def is_timed(asked: Query) -> bool:
    """Whether a page shows the tasks of a range."""
    return "bucket" not in asked and ("subject" not in asked or not asked.keys().isdisjoint(_RANGE))


def range_of(asked: Query, now: datetime) -> tuple[datetime, datetime]:
    """The range ``from`` and ``to``, or ``last`` and ``next``, of which any may be left out. Raises InvalidInput."""
    start, end = query.instant(asked, "from"), query.instant(asked, "to")
    if start is None and end is None:
        wanted = "last" in asked or "next" in asked
        last, ahead = (asked.get(name, "0s" if wanted else "1h") for name in ("last", "next"))
        start = now - _distance(last, "last")
        end = now + max(timedelta(minutes=1), _distance(ahead, "next"))
    start = now - timedelta(hours=1) if start is None else start
    return start, max(start, now) + timedelta(hours=1) if end is None else end


def _page(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    if "search" in asked:  # as its address was
        return RedirectResponse(links.search(asked["search"]), 303)
    if "bucket" in asked:
        return RedirectResponse(links.with_query(links.bucket(asked["bucket"]), {**asked, "bucket": None}), 303)
    selection = _selection(site, asked)
    page = site.client.history(selection, limit=_PAGE, page_token=asked.get("page"))
    return _listed(request, site, "tasks.html", "tasks", selection, page, asked, now)


def _bucket(request: Request) -> Response:
    site = site_of(request)
    now, asked = site.clock(), query_of(request)
    name = links.of_segment(request.path_params["bucket"])
    selection = _selection(site, {**asked, "bucket": name})
    assert selection.bucket is not None
    tick_minutes = site.client.settings()
    step = tick_minutes.grid.tick_minutes if tick_minutes else 1
    page = site.client.history(selection, limit=_PAGE, page_token=asked.get("page"))
    is_whole = not selection.is_filtered and "page" not in asked and page.next_page_token is None
    coming = site.readings.coming(selection.bucket.minute, now)
    return _listed(
        request, site, "bucket.html", "timeline", selection, page, asked, now,
        bucket=selection.bucket, coming=coming,
        is_counted=is_whole, counts=_counts(site, selection.bucket, page) if is_whole else None,
        earlier=instant_of(selection.bucket.minute - step), later=instant_of(selection.bucket.minute + step),
    )  # fmt: skip


def _counts_part(request: Request) -> Response:
    """How many tasks of a bucket there are: of one that fills more than a page, all of it is read for that."""
    site = site_of(request)
    bucket = query.bucket(links.of_segment(request.path_params["bucket"]))
    return site.fragment("bucket_counts.html", site.clock(), bucket=bucket, counts=_counts(site, bucket))


def _counts(site: Site, bucket: Bucket, listed: HistoryPage | None = None) -> BucketCounts | None:
    return next(iter(site.client.bucket_counts(bucket, listed=listed)), None)


def _is_short(selection: Selection) -> bool:
    """Whether its tasks are read again after each tick: more would cost too much."""
    return len(selection.minutes) <= _FOLLOWED if selection.has_range else False


def _listed(
    request: Request,
    site: Site,
    template: str,
    section: str,
    selection: Selection,
    page: HistoryPage,
    asked: Query,
    now: datetime,
    **values: Any,
) -> Response:
    token = page.next_page_token
    # The range of a page is that of the next one, too: the present goes on meanwhile.
    following = {**asked, **({} if selection.bucket is not None else selection.words()), "page": token, "hops": None}
    hops = query.number(asked, "hops") or 0
    looks_on = None if page.entries or token is None or hops >= _MAX_HOPS else {**following, "hops": hops + 1}
    return site.page(
        request, template, section, now=now,
        follows=TICK if _is_short(selection) else SLOWLY, selection=selection, changes=_changes(selection), asked=asked,
        entries=page.entries, statuses=STATUSES,
        next_page=None if token is None else links.with_query(request.url.path, following), through=page.through,
        looks_on=looks_on and links.with_query(request.url.path, looks_on), **values,
    )  # fmt: skip


def _dry_run(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    do = query.choice(asked, "do", tuple(CHANGES)) or "redrive"
    selection = _selection(site, asked)
    to = query.instant(asked, "due_at")
    rows = skipped = tasks = 0
    examples: list[WouldChange] = []
    if do != "reschedule" or to is not None:
        for result in islice(_many(site.client, do, selection, to)(dry_run=True), _MAX_COUNTED):
            if not isinstance(result, WouldChange):
                skipped += 1
                continue
            rows, tasks = rows + 1, tasks + result.tasks
            if len(examples) < _MAX_EXAMPLES:
                examples.append(result)
    return site.page(
        request, "tasks_change.html", "tasks", now=now, do=do, verb=CHANGES[do], selection=selection, tasks=tasks,
        rows=rows, is_bounded=rows + skipped >= _MAX_COUNTED, examples=examples, asked=asked, due_at=to,
        back=links.tasks(**selection.words()),
    )  # fmt: skip


def _change(request: Request, form: Form) -> Response:
    site = site_of(request)
    do = query.choice(form, "do", tuple(CHANGES)) or "redrive"
    selection = _selection(site, form)
    due_at = query.instant(form, "due_at")
    asked = {"do": do, **selection.words(), "due_at": due_at and links.minute(due_at)}
    record = record_of(request)
    job = site.jobs.start(
        CHANGES[do],
        _many(counted_in(site.client, record), do, selection, due_at),
        query.number(form, "confirmed"),
        back=links.tasks(**selection.words()),
        again=links.with_query("/tasks/change", asked),
        record=record,
    )
    return RedirectResponse(links.job(job.id), 303)


def _many(
    client: TaskClient, do: str, selection: Selection, due_at: datetime | None
) -> Callable[..., Iterator[ManyResult]]:
    """The client's method for a change of all selected tasks, which takes ``dry_run``, ``limit`` and ``stop``."""
    if do not in _changes(selection):
        allowed = [status for status, changes in _CHANGEABLE.items() if do in changes]
        raise InvalidInput("status", selection.status, f"expected {' or '.join(allowed)} to {do}")
    match do:
        case "cancel":
            return partial(client.cancel_many, selection)
        case "redrive":
            return partial(client.redrive_many, selection)
        case "restore":
            return partial(client.restore_many, selection)
        case "run-now":
            return partial(client.run_now_many, selection)
        case _:
            if due_at is None:
                raise InvalidInput("due_at", None, "expected a time, such as 2026-12-31T12:00Z")
            return partial(client.reschedule_many, selection, due_at=due_at)


def _changes(selection: Selection) -> tuple[str, ...]:
    """What can be done to all of them."""
    return _CHANGEABLE.get(selection.status or "", ())


def _distance(text: str, name: str) -> timedelta:
    return timedelta() if text == "0s" else query.duration({name: text}, name, text, longest=_LONGEST)


ROUTES = [
    Route("/tasks", _page),
    Route("/tasks/change", _dry_run),
    Route("/tasks/change", change(_change), methods=["POST"]),
    Route("/buckets/{bucket}", _bucket),
    Route("/buckets/{bucket}/counts", _counts_part),
]
