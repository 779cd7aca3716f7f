"""Batches: how each one stands, its members, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.client import Batches, TaskEntry, TaskView
from dynatick.client.batches import BatchView
from dynatick.client.change_records import counted_in
from dynatick.client.views import number_or
from dynatick.domain.batches import OPEN
from dynatick.domain.task import TERMINAL, Status
from dynatick.errors import BatchNotFound, InvalidInput, TransitionRefused
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change, record_of
from dynatick.ui.chart import DUE
from dynatick.ui.display import clock, many, number
from dynatick.ui.query import Query
from dynatick.ui.site import TICK, Notice, query_of, site_of

_PAGE = 50
_LONGEST = timedelta(days=31)
_STATUSES = (Status.SCHEDULED, Status.RUNNING, Status.WAITING, Status.COMPLETED, Status.FAILED, Status.CANCELLED)
_BARS = (Status.COMPLETED, Status.CANCELLED, DUE, Status.SCHEDULED, Status.FAILED)
"""The parts of a batch's bar, in order."""


def _list(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    start, end = range_of(asked, now)
    page = site.client.batches.list(start=start, end=end, limit=_PAGE, page_token=asked.get("page"))
    token = page.next_page_token
    # The range of a page is that of the next one, too: the present goes on meanwhile.
    following = {
        "from": None if start is None else links.minute(start), "to": None if end is None else links.minute(end),
        "page": token,
    }  # fmt: skip
    return site.page(
        request, "batches.html", "batches", now=now, follows=TICK, asked=asked,
        batches=[(one, _bar(one)) for one in page.batches],
        next_page=None if token is None else links.with_query("/batches", following),
    )  # fmt: skip


def range_of(asked: Query, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The range ``from`` and ``to``, or ``last`` and ``next``; None: all. Raises InvalidInput."""
    if asked.keys().isdisjoint(("from", "to", "last", "next")):
        return None, None
    start, end = query.instant(asked, "from"), query.instant(asked, "to")
    minute = now.replace(second=0, microsecond=0)
    ways = ("last", "next") if asked.keys().isdisjoint(("last", "next")) else asked.keys()
    last, ahead = (
        query.duration(asked, name, "24h", longest=_LONGEST) if name in ways else timedelta(minutes=1)
        for name in ("last", "next")
    )
    return start or minute - last, end or minute + ahead


def _bar(batch: BatchView) -> Mapping[str, float]:
    """How much of a batch is in which state, in percent of its members; those that were deleted have no part."""
    counts = dict(batch.counts)
    waiting = counts.pop(OPEN, 0 if batch.ended is not None else batch.members or 0)
    counts[Status.SCHEDULED if batch.status == Status.SCHEDULED else DUE] = waiting
    return {kind: round(100 * counts[kind] / (batch.members or 1), 2) for kind in _BARS if counts.get(kind)}


def _page(request: Request) -> Response:
    site = site_of(request)
    batch, now = site.client.batches.get(links.of_segment(request.path_params["batch"])), site.clock()
    return site.page(
        request, "batch.html", "batches", now=now, follows=TICK, batch=batch, bar=_bar(batch), rate=_rate(batch, now),
        is_open=batch.status not in TERMINAL, waiting=batch.counts.get(OPEN, 0),
    )  # fmt: skip


def _rate(batch: BatchView, now: datetime) -> str | None:
    """How many members end in a second or a minute; None if that can't be said."""
    if batch.ends_at is None or not batch.ended:
        return None
    rate = batch.ended / (now - batch.due_at).total_seconds()
    return f"{number(round(rate))} a second" if rate >= 1 else f"{number(max(1, round(60 * rate)))} a minute"


def _members(request: Request) -> Response:
    site = site_of(request)
    batch_id = links.of_segment(request.path_params["batch"])
    asked, now = query_of(request), site.clock()
    status = query.choice(asked, "status", _STATUSES)
    page = site.client.batches.members_page(batch_id, status, limit=_PAGE, page_token=asked.get("page"))
    token = page.next_page_token
    return site.page(
        request, "batch_members.html", "batches", now=now, follows=TICK, batch_id=batch_id, statuses=_STATUSES,
        wanted=status, entries=[_entry(view) for view in page.members],
        next_page=None if token is None else links.batch(batch_id, "members", status=status, page=token),
    )  # fmt: skip


def _entry(view: TaskView) -> TaskEntry:
    """A member as a list shows it."""
    late = view.late_milliseconds
    return TaskEntry(
        task_id=view.task_id,
        bucket=view.bucket or "",
        status=view.status,
        action=view.action,
        due_at=view.due_at,
        finished_at=view.finished_at,
        error=view.error,
        late_milliseconds=None if late is None else number_or(late, 0),
    )


def _change(request: Request, form: Form) -> Response:
    site = site_of(request)
    batch_id = links.of_segment(request.path_params["batch"])
    try:
        with record_of(request, can_abort=False) as record:
            batches = counted_in(site.client, record).batches
            notice = Notice(_do(batches, site.clock(), batch_id, request.path_params["change"], form))
    except (TransitionRefused, InvalidInput) as error:
        notice = Notice(f"Nothing was changed: {error}", is_problem=True)
    return site.answer(links.batch(batch_id), notice)


def _do(batches: Batches, now: datetime, batch_id: str, do: str, form: Form) -> str:
    """Changes a batch. Returns what was found."""
    match do:
        case "cancel":
            cancelled = batches.cancel(batch_id)
            found = f"{many(cancelled.cancelled, 'member')} cancelled"
            return f"{found}; {number(cancelled.running)} that run end by themselves."
        case "reschedule":
            moved = batches.reschedule(batch_id, due_at=query.required_instant(form, "due_at"))
            found = f"{many(moved.rescheduled, 'member')} rescheduled to {clock(moved.due_at, now)}"
            return f"{found}; {number(moved.running)} run already."
        case "redrive":
            redriven = batches.redrive(batch_id)
            return f"{many(redriven.redriven, 'member')} redriven: they run at the next tick."
        case _:
            raise BatchNotFound(batch_id)


ROUTES = [
    Route("/batches", _list),
    Route("/batches/{batch}", _page),
    Route("/batches/{batch}/members", _members),
    Route("/batches/{batch}/{change}", change(_change), methods=["POST"]),
]
