"""Changes of many tasks, which go on after the answer."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread

from dynatick.client import Changed, ChangeUnknown, ConfirmedChange, ManyResult, Skipped, WouldChange
from dynatick.errors import DynatickError

_MAX_JOBS = 50
_MAX_REASONS = 20
_SOON_SECONDS = 1.0
"""A job that ends within this time is answered with its end."""


@dataclass(slots=True)
class Job:
    """A change of many tasks, while it runs and after. Lives as long as the server."""

    id: str
    verb: str  # what happens to each task: redriven, cancelled, moved
    back: str  # the page that it was started from
    again: str  # the page with the dry run
    changed: int = 0
    skipped: int = 0
    unknown: int = 0  # the write failed, or got no answer
    reasons: Counter[str] = field(default_factory=Counter)  # why tasks were not changed
    problem: str | None = None
    more: bool = False  # further tasks match: they were not among those that were confirmed
    ended: Event = field(default_factory=Event)

    @property
    def state(self) -> str:
        """running, done, failed."""
        if not self.ended.is_set():
            return "running"
        return "failed" if self.problem is not None else "done"


class Jobs:
    """The latest jobs, by id."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._done = done

    def get(self, job: str) -> Job | None:
        return self._jobs.get(job)

    def start(self, verb: str, change: ConfirmedChange, *, back: str, again: str) -> Job:
        """Consumes the results of a change in a thread. Returns when they have ended, or after a moment."""
        job = Job(id=secrets.token_urlsafe(6), verb=verb, back=back, again=again)
        self._jobs[job.id] = job
        while len(self._jobs) > _MAX_JOBS:
            self._jobs.popitem(last=False)
        Thread(target=self._run, args=(job, change), name=f"dynatick-job-{job.id}", daemon=True).start()
        job.ended.wait(_SOON_SECONDS)
        return job

    def _run(self, job: Job, change: ConfirmedChange) -> None:
        try:
            for result in change.results():
                _count(job, result)
            job.more = change.has_more()
        except DynatickError as error:
            job.problem = str(error)
        except BaseException as error:
            job.problem = f"unexpected {type(error).__name__}: {error}"
            raise
        finally:
            self._done()
            job.ended.set()


def _count(job: Job, result: ManyResult) -> None:
    match result:
        case Changed() | WouldChange():
            job.changed += 1
        case Skipped(reason=reason):
            job.skipped += 1
            _note(job, reason)
        case ChangeUnknown(error=error):
            job.unknown += 1
            _note(job, str(error))


def _note(job: Job, reason: str) -> None:
    if reason in job.reasons or len(job.reasons) < _MAX_REASONS:
        job.reasons[reason] += 1
