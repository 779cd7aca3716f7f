"""Changes of many tasks, which go on after the answer, and what comes of the runs that they begin."""

from __future__ import annotations

import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from dynatick.client import Changed, ChangeUnknown, ConfirmedChange, ManyResult, Skipped, TaskClient, WouldChange
from dynatick.client.change_records import ChangeRecord, FollowedRuns, RunCounts
from dynatick.errors import DynatickError
from dynatick.ui import links

REDRIVEN = "redriven"

_LOOKS_EACH_SECONDS = 1.0  # whether another process has asked to abort the change
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
    aborted: Event = field(default_factory=Event)  # it ends after the tasks that are being changed
    ended: Event = field(default_factory=Event)
    _runs: FollowedRuns = field(default_factory=FollowedRuns)
    _lock: Lock = field(default_factory=Lock)  # of what follows the runs

    @property
    def state(self) -> str:
        """running, done, failed, aborted."""
        if not self.ended.is_set():
            return "running"
        if self.problem is not None:
            return "failed"
        return "aborted" if self.aborted.is_set() else "done"

    @property
    def words(self) -> str:
        """``68 redriven, 2 skipped``."""
        parts = [f"{self.changed:,} {self.verb}"]
        parts += [f"{self.skipped:,} skipped"] if self.skipped else []
        return ", ".join([*parts, *([f"{self.unknown:,} without an answer"] if self.unknown else [])])

    @property
    def runs(self) -> RunCounts | None:
        """What has come of the runs, as they were read last; None: it began none."""
        with self._lock:
            return self._runs.counts() if self._runs.followed else None

    @property
    def not_followed(self) -> int:
        """Runs beyond those that are followed."""
        return self._runs.not_followed

    @property
    def goes_on(self) -> bool:
        """Whether there will be something new to see."""
        return not self.ended.is_set() or not self._runs.has_ended

    def refresh(self, client: TaskClient) -> None:
        """Reads what has come of the runs. Raises StoreError."""
        if self.ended.is_set():  # until then none of them was due
            with self._lock:
                self._runs.refresh(client.store)

    def add(self, result: ManyResult) -> None:
        match result:
            case Changed(task=task, tasks=tasks):
                self.changed += tasks
                if self.verb == REDRIVEN:
                    with self._lock:
                        self._runs.add(task)
            case WouldChange(tasks=tasks):
                self.changed += tasks
            case Skipped(reason=reason):
                self.skipped += 1
                self._note(reason)
            case ChangeUnknown(error=error):
                self.unknown += 1
                self._note(str(error))

    def _note(self, reason: str) -> None:
        if reason in self.reasons or len(self.reasons) < _MAX_REASONS:
            self.reasons[reason] += 1


class Jobs:
    """The latest jobs, by id."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._done = done
        self.ended: Callable[[Job], None] = lambda job: None
        """Called when a job has ended."""

    def of(self, path: str) -> Job | None:
        """The job of a page."""
        return next((job for job in list(self._jobs.values()) if links.job(job.id) == path), None)

    def get(self, job: str) -> Job | None:
        return self._jobs.get(job)

    def start(
        self,
        verb: str,
        change: Callable[..., Iterator[ManyResult]],
        number: int | None,
        *,
        back: str,
        again: str,
        record: ChangeRecord | None = None,
    ) -> Job:
        """Changes in a thread what the client's method ``change`` selects, ``number`` tasks at most. Returns when that
        has ended, or after a moment. ``record``: that ``change`` counts in; the job has its id."""
        job_id = secrets.token_urlsafe(6) if record is None else record.change_id
        job = Job(id=job_id, verb=verb, back=back, again=again)
        self._jobs[job.id] = job
        while len(self._jobs) > _MAX_JOBS:
            self._jobs.popitem(last=False)
        confirmed = ConfirmedChange(change, number, stop=_stop(job, record))
        Thread(target=self._run, args=(job, confirmed, record), name=f"dynatick-job-{job.id}", daemon=True).start()
        job.ended.wait(_SOON_SECONDS)
        return job

    def _run(self, job: Job, change: ConfirmedChange, record: ChangeRecord | None) -> None:
        try:
            with record or nullcontext():
                for result in change.results():
                    job.add(result)
                if record is not None:
                    record.is_aborted = job.aborted.is_set()
            job.more = not job.aborted.is_set() and change.has_more()
        except DynatickError as error:
            job.problem = str(error)
        except BaseException as error:
            job.problem = f"unexpected {type(error).__name__}: {error}"
            raise
        finally:
            self._done()
            job.ended.set()
            self.ended(job)


def _stop(job: Job, record: ChangeRecord | None) -> Callable[[], bool]:
    """Whether a job is to end: it was aborted here, or by another process, which has left that in the record."""
    looked_at = time.monotonic()

    def stop() -> bool:
        nonlocal looked_at
        if record is not None and time.monotonic() - looked_at >= _LOOKS_EACH_SECONDS:
            looked_at = time.monotonic()
            if record.is_to_end():
                job.aborted.set()
        return job.aborted.is_set()

    return stop
