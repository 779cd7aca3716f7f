"""*Now*: whether the installation runs, what ran and what will run, what failed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.ui.site import site_of
from dynatick.ui.state import state_of


def _page(request: Request) -> Response:
    site = site_of(request)
    return site.page(request, "now.html", "now", now=site.clock())


def _live(request: Request) -> Response:
    """The state and the last tick, for the head of every page. ``state``: the one that the page shows."""
    site = site_of(request)
    now = site.clock()
    state = state_of(site.client, now)
    return site.fragment("live.html", now, state=state, changed=state.word != request.query_params.get("state"))


ROUTES = [Route("/", _page), Route("/live", _live)]
