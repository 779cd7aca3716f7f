"""Changes: what was changed by these pages, by whom, and what has come of it; those of many tasks while they go on."""

from __future__ import annotations

from itertools import islice

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.ui import links
from dynatick.ui.changes import Form, change
from dynatick.ui.jobs import Job
from dynatick.ui.site import Notice, Site, site_of

_REFRESHED = 5  # jobs whose runs the list reads again

_NONE = "There is no such change; dynatick ui keeps the latest ones while it runs."


def _page(request: Request) -> Response:
    site = site_of(request)
    _refresh(site)
    return site.page(request, "changes.html", "changes", now=site.clock(), changes=list(site.trail))


def _rows(request: Request) -> Response:
    site = site_of(request)
    _refresh(site)
    return site.fragment("changes_rows.html", site.clock(), changes=list(site.trail))


def _refresh(site: Site) -> None:
    jobs = (made.job for made in site.trail if made.job is not None and made.job.goes_on)
    for job in islice(jobs, _REFRESHED):
        job.refresh(site.client)


def _job(request: Request) -> Response:
    site = site_of(request)
    job = _job_of(request)
    if job is None:
        return site.problem(request, 404, _NONE)
    job.refresh(site.client)
    if "hx-request" in request.headers:
        return site.fragment("job_part.html", site.clock(), job=job)
    return site.page(request, "job.html", "changes", now=site.clock(), job=job)


def _abort(request: Request, form: Form) -> Response:
    site = site_of(request)
    job = _job_of(request)
    if job is None:
        return site.problem(request, 404, _NONE)
    if job.ended.is_set():
        return site.answer(links.job(job.id), Notice("It has ended already.", is_problem=True))
    job.aborted.set()
    return site.answer(links.job(job.id), Notice("It ends after the tasks that are being changed now."))


def _job_of(request: Request) -> Job | None:
    return site_of(request).jobs.get(links.of_segment(request.path_params["job"]))


ROUTES = [
    Route("/changes", _page),
    Route("/changes/rows", _rows),
    Route("/jobs/{job}", _job),
    Route("/jobs/{job}/abort", change(_abort), methods=["POST"]),
]
