"""The changes that were made by these pages: who asked for what, and what came of it. For the page of the changes, and
as a line of JSON each in the log ``dynatick.ui``.
"""

from __future__ import annotations

import getpass
import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from threading import Lock

from dynatick.client import TaskClient
from dynatick.client.change_records import ChangeRecord, ChangeView, new_record
from dynatick.domain.instants import format_instant
from dynatick.errors import StoreError
from dynatick.ui import links
from dynatick.ui.jobs import Job

LOG = logging.getLogger("dynatick.ui")

_MAX_KEPT = 200
_NOT_SHOWN = ("token", "confirmed", "do")
_SECRET = ("payload",)  # it may hold anything
_KINDS = {"tasks": "task", "schedules": "schedule", "batches": "batch"}


@dataclass(slots=True, kw_only=True)
class MadeChange:
    """A change that was asked for."""

    at: datetime
    who: str
    what: str  # redrive, cancel, …
    about: str  # what it is a change of, in words
    link: str  # where that is
    given: Mapping[str, str]  # the filter, the reason, the new time
    result: str | None = None  # None: a job, which says so
    is_problem: bool = False
    job: Job | None = None
    record: ChangeView | None = None  # in the table, of a change of many tasks
    change_id: str | None = None  # of the record, of a change that was made by these pages

    @property
    def state(self) -> str:
        """running, done, failed, aborted."""
        if self.job is not None:
            return self.job.state
        if self.record is not None:
            return self.record.state
        return "failed" if self.is_problem else "done"


class Trail:
    """The latest changes. Safe for several threads. Those of many tasks have a record in the table, too."""

    def __init__(self, clock: Callable[[], datetime], caller: Callable[[], str | None]) -> None:
        self._clock, self._caller = clock, caller
        self._made: deque[MadeChange] = deque(maxlen=_MAX_KEPT)
        self._lock = Lock()  # a job may end while its change is being answered

    def __iter__(self) -> Iterator[MadeChange]:
        """The latest first."""
        return iter(list(self._made)[::-1])

    @cached_property
    def _arn(self) -> str | None:
        return self._caller()

    @property
    def who(self) -> str:
        """The caller's ARN; where there is none, the user of this machine."""
        return self._arn or user() or "unknown"

    @property
    def account(self) -> str | None:
        """The account of the caller; None: not known."""
        parts = (self._arn or "").split(":")
        return parts[4] if len(parts) > 4 else None

    def begin(self, path: str, form: Mapping[str, str]) -> MadeChange:
        what, about, link = _subject(path, form)
        given = {name: "another one" if name in _SECRET else value for name, value in form.items()}
        given = {name: value for name, value in given.items() if name not in _NOT_SHOWN}
        made = MadeChange(at=self._clock(), who=self.who, what=what, about=about, link=link, given=given)
        self._made.append(made)
        return made

    def end(self, made: MadeChange, result: str | None, *, is_problem: bool = False, job: Job | None = None) -> None:
        """``result``: what came of it; None if a ``job`` does it."""
        made.result, made.is_problem, made.job = result, is_problem, job
        if job is None:
            self._log("change_refused" if is_problem else "change_made", made, {"result": result})
        else:
            self._log("change_begun", made, {"job": job.id})
            if job.ended.is_set():
                self.log_end(job)

    def record_of(self, made: MadeChange, client: TaskClient, *, can_abort: bool) -> ChangeRecord:
        """The record of a change of many tasks. The change is made all the same if it can't be written."""

        def log(view: ChangeView, error: StoreError) -> None:
            self._log("change_not_recorded", made, {"job": view.change_id, "problem": str(error)})

        given = {"of": made.about, **made.given}
        record = new_record(
            client, made.what, given, by=made.who, interface="page", can_abort=can_abort, not_written=log
        )
        made.change_id = record.change_id
        return record

    def log_end(self, job: Job) -> None:
        """Logs how a job has ended; once, whether it ends before the change has been answered or after."""
        with self._lock:
            made = next((one for one in self._made if one.job is job), None)
            if made is None or made.result is not None:
                return
            made.result = job.words
        counts = {"changed": job.changed, "skipped": job.skipped, "unknown": job.unknown}
        problem = {} if job.problem is None else {"problem": job.problem}
        self._log("change_ended", made, {"job": job.id, "state": job.state, **counts, **problem})

    def _log(self, action: str, made: MadeChange, more: Mapping[str, object]) -> None:
        line = {
            "timestamp": format_instant(self._clock()),
            "action": action,
            "caller": made.who,
            "user": user(),
            "change": made.what,
            "about": made.about,
            "given": dict(made.given),
            **more,
        }
        LOG.info(json.dumps(line, default=str, separators=(",", ":")))


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{self.format(record)}\n")


def log_changes() -> None:
    """Writes the lines to stderr."""
    LOG.handlers = [_ToStderr()]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


def user() -> str | None:
    """The user of this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return None


def _subject(path: str, form: Mapping[str, str]) -> tuple[str, str, str]:
    """What is done, to what, and where that is, by the path of a form."""
    match path.strip("/").split("/"):
        case ["tasks", "change"]:
            filters = {name: form[name] for name in form if name not in (*_NOT_SHOWN, "due_at")}
            return form.get("do", "redrive"), "many tasks", links.tasks(**filters)
        case ["tasks", "selected"]:
            return form.get("do", "redrive"), "selected tasks", "/tasks"
        case ["failures", "redrive"]:
            fingerprint, last = form.get("fingerprint"), form.get("last")
            if fingerprint is None:
                return "redrive", "all failures", links.failures(last=last)
            return "redrive", f"failures {fingerprint}", links.failure(fingerprint, last=last)
        case ["jobs", job, what]:
            return what, "a change of many tasks", links.job(links.of_segment(job))
        case ["actions", segment, what]:
            return what, f"action {links.of_segment(segment)}", links.action(links.of_segment(segment))
        case [kind, segment, what] if kind in _KINDS:
            return what, f"{_KINDS[kind]} {links.of_segment(segment)}", f"/{kind}/{segment}"
        case [what]:
            return what, "everything", "/"
        case _:
            return path, "", "/"
