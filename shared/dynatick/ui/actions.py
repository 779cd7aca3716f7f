"""Actions: what waits, what ran, how much of it failed and how late it was, today beside yesterday; and the pause of
one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.client.operations import ActionList, Waiting, action_list
from dynatick.domain.buckets import minute_of
from dynatick.domain.task import RESERVED_ACTIONS
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change
from dynatick.ui.display import clock
from dynatick.ui.readings import MINUTE
from dynatick.ui.site import Notice, Site, query_of, site_of
from dynatick.ui.trail import user

_LONGEST = timedelta(days=1)  # twice as much is read


def _page(request: Request) -> Response:
    """The page, without what waits: that is read by a request of its own."""
    site = site_of(request)
    asked, last, now = query_of(request), _last(request), site.clock()
    to = query.instant(asked, "to")
    return site.page(
        request, "actions.html", "actions", now=now, last=asked.get("last", "24h"), to=to,
        found=_actions(site, asked, now, last, None),
    )  # fmt: skip


def _action(request: Request) -> Response:
    """The page of an action, also of one of which nothing is known."""
    site, action = site_of(request), _named(request)
    asked, last, now = query_of(request), _last(request), site.clock()
    settings = site.client.settings()
    return site.page(
        request, "action.html", "actions", now=now, last=asked.get("last", "24h"), to=query.instant(asked, "to"),
        action=action, paused=None if settings is None else settings.paused_actions.get(action),
        may_pause=not action.startswith(RESERVED_ACTIONS), found=_only(_actions(site, asked, now, last, None), action),
    )  # fmt: skip


def _rows(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    asked = query_of(request)
    found = _actions(site, asked, now, _last(request), site.readings.waiting())
    return site.fragment("actions_rows.html", now, found=_only(found, asked.get("action")), to=None)


def _change(request: Request, form: Form) -> Response:
    """Pauses or resumes an action."""
    site, action = site_of(request), _named(request)
    operations = site.client.operations
    match request.path_params["change"]:
        case "pause":
            found = operations.pause_action(action, reason=form.get("reason"), by=user())
            by = f" by {found.by}" if found.by else ""
            text = f"{action} is paused{by}: none of its tasks begins, until it is resumed."
        case "resume":
            ended = operations.resume_action(action)
            begin = (
                "" if ended is None or ended.waiting_begin_by is None else clock(ended.waiting_begin_by, site.clock())
            )
            text = f"{action} is resumed: tasks that wait begin by {begin}." if begin else f"{action} was not paused."
        case other:
            raise HTTPException(404, f"There is no change {other} of an action.")
    return site.answer(links.action(action), Notice(text))


def _named(request: Request) -> str:
    return links.of_segment(request.path_params["action"])


def _only(found: ActionList, action: str | None) -> ActionList:
    """Without the others. None: all."""
    return (
        found if action is None else replace(found, actions=tuple(one for one in found.actions if one.action == action))
    )


def _last(request: Request) -> timedelta:
    return query.duration(query_of(request), "last", "24h", longest=_LONGEST)


def _actions(
    site: Site, asked: query.Query, now: datetime, last: timedelta, waiting: Mapping[str, Waiting] | None
) -> ActionList:
    until = query.until(asked, now)
    counts = site.readings.counts(until + MINUTE - 2 * last, now, until + MINUTE if "to" in asked else None)
    return action_list(counts, minute_of(until - last) + 1, waiting, site.client.settings())


ROUTES = [
    Route("/actions", _page),
    Route("/actions/rows", _rows),
    Route("/actions/{action}", _action),
    Route("/actions/{action}/{change}", change(_change), methods=["POST"]),
]
