"""Tasks that were selected one by one: what a change would do to them, and the change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dynatick.client import Changed, ChangeUnknown, ManyResult, Skipped, TaskClient, TaskView, WouldChange
from dynatick.client.change_records import ChangeRecord
from dynatick.domain.batches import tasks_changed
from dynatick.errors import InvalidInput, StoreError, TaskChanged, TaskNotFound, TransitionRefused
from dynatick.json_reader import loads
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change, record_of
from dynatick.ui.site import Site, query_of, site_of
from dynatick.ui.task import possible
from dynatick.ui.tasks import CHANGES

_MAX_SELECTED = 50  # the rows of a page
_CHANGES = ("redrive", "run-now", "cancel", "restore")


def _dry_run(request: Request) -> Response:
    site = site_of(request)
    ids = _checked(list(dict.fromkeys(request.query_params.getlist("id"))))
    do = query.choice(query_of(request), "do", _CHANGES) or "redrive"
    results = list(_preview(site.client, do, ids))
    found = [one for one in results if isinstance(one, WouldChange)]
    return site.page(
        request, "tasks_selected.html", "tasks", now=site.clock(), do=do, found=found,
        tasks=sum(one.tasks for one in found), ids=json.dumps([one.task_id for one in found]),
        skipped=[one for one in results if isinstance(one, Skipped)],
    )  # fmt: skip


def _change(request: Request, form: Form) -> Response:
    site = site_of(request)
    do = query.choice(form, "do", _CHANGES) or "redrive"
    ids = _checked(loads(form.get("ids", "[]"), "ids"))
    again = f"/tasks/selected?{links.pairs([('do', do), *(('id', task_id) for task_id in ids)])}"
    record = record_of(request)
    each = partial(_each, site, do, ids, record)
    job = site.jobs.start(CHANGES[do], each, len(ids), back="/tasks", again=again, record=record)
    return RedirectResponse(links.job(job.id), 303)


def _checked(ids: object) -> Sequence[str]:
    """Raises InvalidInput."""
    if not isinstance(ids, list) or len(ids) > _MAX_SELECTED or not all(isinstance(one, str) for one in ids):
        raise InvalidInput("ids", ids, f"expected up to {_MAX_SELECTED} ids")
    return ids


def _each(
    site: Site,
    do: str,
    ids: Sequence[str],
    record: ChangeRecord,
    *,
    dry_run: bool,
    limit: int | None = None,
    stop: Callable[[], bool] = bool,
) -> Iterator[ManyResult]:
    """Changes the tasks one after another, as a method of the client that changes many does."""
    if dry_run:
        yield from _preview(site.client, do, ids)
        return
    for task_id in ids[:limit]:
        if stop():
            return
        record.begin()
        result = _changed(site.client, do, task_id)
        record.add([result])
        yield result


def _changed(client: TaskClient, do: str, task_id: str) -> ManyResult:
    try:
        task = _method(client, do)(task_id)
        return Changed(task_id, task, tasks_changed(task.row))
    except TaskNotFound:
        return Skipped(task_id, "it was deleted")
    except (TransitionRefused, TaskChanged, InvalidInput) as error:
        return Skipped(task_id, str(error))
    except StoreError as error:
        return ChangeUnknown(task_id, error)


def _preview(client: TaskClient, do: str, ids: Sequence[str]) -> Iterator[ManyResult]:
    for task_id in ids:
        try:
            task = client.get(task_id)
        except TaskNotFound:
            yield Skipped(task_id, "there is no such task")
            continue
        except InvalidInput as error:
            yield Skipped(task_id, str(error))
            continue
        if do in possible(task):
            yield WouldChange(task_id, task, tasks_changed(task.row))
        else:
            yield Skipped(task_id, f"it is {task.status}")


def _method(client: TaskClient, do: str) -> Callable[[str], TaskView]:
    methods: Mapping[str, Callable[[str], TaskView]] = {
        "redrive": client.redrive, "run-now": client.run_now, "cancel": client.cancel, "restore": client.restore,
    }  # fmt: skip
    return methods[do]


ROUTES = [
    Route("/tasks/selected", _dry_run),
    Route("/tasks/selected", change(_change), methods=["POST"]),
]
