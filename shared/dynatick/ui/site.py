"""What all pages share: the installation, the token of changes, notices, and the templates."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from http import HTTPStatus
from importlib import metadata
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dynatick.client import TaskClient
from dynatick.domain.departure_text import DEPARTURE_TEXT
from dynatick.ui import display, links
from dynatick.ui.chart import ATTEMPTS, KINDS, WORDS, Chart, middle
from dynatick.ui.jobs import Job, Jobs
from dynatick.ui.query import trimmed
from dynatick.ui.readings import DAY, HOUR, MINUTE, Readings
from dynatick.ui.state import PREFIXES, UNREAD, State, state_of
from dynatick.ui.trail import Trail
from dynatick.ui.trouble import Access, Trouble
from dynatick.ui.zone import PARAMETER, parameters, zone_name

_MAX_NOTICES = 200
_ASSETS = {
    "dynatick.css": "text/css",
    "charts.js": "text/javascript",
    "dynatick.js": "text/javascript",
    "live.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-bad.svg": "image/svg+xml",
    "icon-paused.svg": "image/svg+xml",
}
# htmx without what the Content-Security-Policy forbids; and it shows an answer that is an error, too.
_HTMX = {
    "allowEval": False,
    "allowScriptTags": False,
    "includeIndicatorStyles": False,
    "historyCacheSize": 0,
    "responseHandling": [
        {"code": "204", "swap": False},
        {"code": "[23]..", "swap": True},
        {"code": "[45]..", "swap": True, "error": True},
    ],
}
TICK, SLOWLY = "tick from:body", "every 1800s, again from:body"
"""When a page that stays open is read again: after each tick; what would cost too much, each half hour."""

_OF_NO_PAGE = ("notice", PARAMETER, *links.INSTALLATION)
"""Parameters that each page may have, and that say nothing of what it shows."""

_FOLLOWS = "dynatick-follows"
"""A header of requests that a tick makes."""

_ICONS = {"paused": "icon-paused.svg", "late": "icon-bad.svg", "none": "icon-bad.svg", UNREAD: "icon-bad.svg"}
_SECTIONS = (
    ("now", "Now", "/"),
    ("timeline", "Timeline", "/timeline"),
    ("failures", "Failures", "/failures"),
    ("actions", "Actions", "/actions"),
    ("tasks", "Tasks", "/tasks"),
    ("batches", "Batches", "/batches"),
    ("schedules", "Schedules", "/schedules"),
    ("ticks", "Ticks", "/ticks"),
    ("changes", "Changes", "/changes"),
)


@dataclass(frozen=True, slots=True)
class Notice:
    """What a change did, or why it did nothing. ``link``: where to see it."""

    text: str
    is_problem: bool = False
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the pages. Its URL changes with its content, so that it may be kept."""

    content: bytes
    kind: str
    url: str

    @classmethod
    def read(cls, name: str) -> Asset:
        content = files("dynatick.ui").joinpath("static", name).read_bytes()
        return cls(content, _ASSETS[name], f"/static/{hashlib.sha256(content).hexdigest()[:12]}/{name}")


@cache
def _assets() -> Mapping[str, Asset]:
    return {name: Asset.read(name) for name in _ASSETS}


@cache
def _templates() -> Environment:
    """One for all sites of a process: it compiles each template once."""
    templates = Environment(
        loader=PackageLoader("dynatick.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= display.FILTERS
    templates.globals |= {
        "asset": lambda name: _assets()[name].url,
        "htmx_config": json.dumps(_HTMX),
        "max_shown": display.MAX_SHOWN,
        "kinds": KINDS,
        "departure_text": DEPARTURE_TEXT,
        "one_day": DAY,
        "one_hour": HOUR,
        "one_minute": MINUTE,
        "words": WORDS,
        "all_kinds": (*KINDS, ATTEMPTS),
        "chart_of": Chart,
        "middle": middle,
        "link": links,
        "sections": _SECTIONS,
        "icons": {word: _assets()[name].url for word, name in _ICONS.items()},
        "prefixes": PREFIXES,
        "tick": TICK,
        "version": metadata.version("dynatick"),
    }
    return templates


@dataclass(kw_only=True)
class Site:
    """The pages of one installation. ``token``: each change needs it; another at every start."""

    client: TaskClient
    clock: Callable[[], datetime]
    name: str  # of the table or the stack
    region: str | None = None  # None: not known
    read_only: bool = False
    caller: Callable[[], str | None] = lambda: None  # the ARN of who changes something by these pages
    access: Access = field(default_factory=Access)
    kept_seconds: float = 10  # for which an answer of the table is used again, by the parts of a page
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _notices: OrderedDict[str, Notice] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.readings = Readings(self.client, self.kept_seconds)
        self.jobs = Jobs(done=self.readings.clear)
        self.trail = Trail(self.clock, self.caller)
        self.jobs.ended = self.trail.log_end
        self.assets = _assets()

    def fragment(self, template: str, now: datetime, *, status: int = 200, **values: Any) -> Response:
        """A part of a page."""
        text = _templates().get_template(template).render(
            now=now, site=self, token=self.token, read_only=self.read_only, zone_name=zone_name(), kept=parameters(),
            **values,
        )  # fmt: skip
        return HTMLResponse(links.keeping(text, parameters()), status_code=status)

    def page(
        self,
        request: Request,
        template: str,
        section: str,
        *,
        now: datetime,
        follows: str | None = None,
        state: State | None = None,
        **values: Any,
    ) -> Response:
        """A whole page. ``section``: the one of the navigation that it belongs to. ``follows``: when all of it is read
        again while it stays open, TICK or SLOWLY; None: its parts are, or it is a question that must not change.
        ``state``: that of the installation, if it is read already."""
        return self.fragment(
            template,
            now,
            section=section,
            state=state or state_of(self.client, now),
            notice=self._notices.get(request.query_params.get("notice", "")),
            trouble=None,
            follows=follows,
            here=_here(request),
            **values,
        )

    def problem(self, request: Request, status: int, text: str) -> Response:
        """The answer to a request that could not be served."""
        title = HTTPStatus(status).phrase
        template = "problem_part.html" if "hx-request" in request.headers else "problem.html"
        return self._stateless(template, status, title=title, text=text)

    def installation(self) -> Mapping[str, str]:
        """What tells the installation from others, as far as it is known. AWS may be asked whose credentials these
        are, once."""
        known = (self.name, self.region, self.trail.account)
        return {name: value for name, value in zip(links.INSTALLATION, known, strict=True) if value}

    def other(self, request: Request, wanted: Mapping[str, str]) -> Response | None:
        """The answer to an address of another installation, by what the address has of it; None: it is of this one."""
        own = self.installation()
        if all(own.get(name, value) == value for name, value in wanted.items()):
            return None
        own = {name: own[name] for name in wanted if name in own}
        return self._stateless("other_stack.html", 404, wanted=wanted, own=own, instead=_here(request))

    def trouble(self, request: Request, status: int, trouble: Trouble) -> Response:
        """The answer to a request for which the table could not be read. That for a part goes into the one banner of
        its page, so that what was read before stays."""
        if "hx-request" not in request.headers:
            return self._stateless("trouble_page.html", status, title="Not read", trouble=trouble)
        answer = self.fragment("trouble.html", self.clock(), status=status, trouble=trouble)
        answer.headers.update({"HX-Retarget": "#trouble", "HX-Reswap": "innerHTML"})
        return answer

    def _stateless(self, template: str, status: int, *, trouble: Trouble | None = None, **values: Any) -> Response:
        """A whole page of no section, without the state of the installation."""
        return self.fragment(
            template, self.clock(), status=status, trouble=trouble, section="", state=None, notice=None, follows=None,
            here="", **values,
        )  # fmt: skip

    def answer(self, location: str, notice: Notice) -> Response:
        """The answer to a change: leads to a page that shows the notice."""
        self.readings.clear()
        key = secrets.token_urlsafe(6)
        self._notices[key] = notice
        while len(self._notices) > _MAX_NOTICES:
            self._notices.popitem(last=False)
        return RedirectResponse(links.with_query(location, {"notice": key}), status_code=303)

    def outcome_of(self, answer: Response) -> tuple[Notice | None, Job | None]:
        """What the answer to a change leads to: a notice, or a job."""
        address = urlsplit(answer.headers.get("location", ""))
        notice = parse_qs(address.query).get("notice", [""])[0]
        return self._notices.get(notice), self.jobs.of(address.path)


def _here(request: Request) -> str:
    """The address of a page, without what says nothing of it. A parameter may come several times."""
    shown = [(name, value) for name, value in request.query_params.multi_items() if name not in _OF_NO_PAGE and value]
    return f"{request.url.path}{'?' if shown else ''}{links.pairs(shown)}"


def site_of(request: Request) -> Site:
    """The site that a request asks."""
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


def readings_of(request: Request) -> Readings:
    """What the table has, for a request; one that a tick made reads no more than can have changed."""
    readings = site_of(request).readings
    return readings.following() if _FOLLOWS in request.headers else readings


def query_of(request: Request) -> Mapping[str, str]:
    """The parameters of a request's URL, without those that are empty."""
    return trimmed((name, value) for name, value in request.query_params.items() if name not in _OF_NO_PAGE)
