"""What comes of the runs that a change of many tasks has begun: how many completed, failed again, still wait."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any

from dynatick.client.tasks import watch
from dynatick.client.views import TaskView, number_or, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.lifecycle import state_of
from dynatick.domain.task import Row, Status
from dynatick.domain.view import View
from dynatick.engine.ports import Store
from dynatick.json_reader import parse

MAX_FOLLOWED = 10_000
MAX_PACKED_BYTES = 64 * 1024
"""Of the runs in the record of a change, before they are compressed: some 2,000 of them."""

_MAX_READ = 1000  # rows at a time

_ENDED = {str(Status.COMPLETED): "completed", str(Status.FAILED): "failed", str(Status.CANCELLED): "cancelled"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCounts(View):
    """What has come of the runs."""

    followed: Annotated[int, "How many runs."]
    completed: int
    failed: int
    cancelled: int
    changed: Annotated[int, "Their task was redriven or replaced since, or is gone."]

    @property
    def waiting(self) -> Annotated[int, "Have not ended: they wait, run, or are to be tried again."]:
        return self.followed - self.completed - self.failed - self.cancelled - self.changed

    def __str__(self) -> str:
        """``61 completed, 5 failed again, 2 waiting``; without zeros but of those that have completed. They are runs of
        redriven tasks."""
        parts = [f"{self.completed} completed"]
        for number, words in (
            (self.failed, "failed again"),
            (self.cancelled, "cancelled"),
            (self.changed, "changed since"),
            (self.waiting, "waiting"),
        ):
            if number:
                parts.append(f"{number} {words}")
        return ", ".join(parts)


@dataclass(slots=True)
class FollowedRuns:
    """Runs, until they have ended. Not safe for several threads at a time."""

    followed: int = 0
    not_followed: int = 0  # beyond the first 10,000
    _begun: dict[str, int] = field(default_factory=dict)  # the run of each task
    _open: dict[str, int] = field(default_factory=dict)  # those of them that have not ended
    _ended: dict[str, int] = field(default_factory=dict)  # how many, by how

    def add(self, task: TaskView) -> bool:
        """Follows the run that a task has now. False: it is followed already."""
        if self._begun.get(task.task_id) == task.run:
            return False
        if self.followed >= MAX_FOLLOWED:
            self.not_followed += 1
            return True
        self.followed += 1
        self._begun[task.task_id] = self._open[task.task_id] = task.run
        return True

    def refresh(self, store: Store) -> None:
        """Reads up to 1,000 of the tasks whose runs have not ended, those that were not read for longest first. Raises
        StoreError."""
        ids = list(self._open)[:_MAX_READ]
        if not ids:
            return
        rows = store.get_many(ids, only=(attr.STATUS, attr.OUTCOME, attr.RUN))
        for task_id in ids:
            run = self._open.pop(task_id)
            ended = _ended(rows.get(task_id), run)
            if ended is None:
                self._open[task_id] = run
            else:
                self._ended[ended] = self._ended.get(ended, 0) + 1

    def wait(
        self, store: Store, *, timeout: timedelta | None, pause: Callable[[float], None] = time.sleep
    ) -> RunCounts:
        """Waits until all have ended or the time is up (None: never), and returns the counts. Raises StoreError."""

        def poll() -> RunCounts:
            self.refresh(store)
            return self.counts()

        return watch(poll, lambda _: self.has_ended, timeout=timeout, seconds=time.monotonic, pause=pause)

    def refresh_all(self, store: Store) -> None:
        """Reads all of the tasks whose runs have not ended, once. Raises StoreError."""
        for _ in range(0, len(self._open), _MAX_READ):
            self.refresh(store)

    def packed(self) -> tuple[bytes | None, int]:
        """All runs, compressed, as far as they fit; None: there are none. And how many runs are not in it."""
        pairs: list[str] = []
        size = 0
        for task_id, run in self._begun.items():
            pair = json.dumps([task_id, run])
            size += len(pair) + 1
            if size > MAX_PACKED_BYTES:
                break
            pairs.append(pair)
        left_out = self.not_followed + len(self._begun) - len(pairs)
        return (zlib.compress(f"[{','.join(pairs)}]".encode()) if pairs else None), left_out

    @classmethod
    def unpacked(cls, content: object, not_followed: int = 0) -> FollowedRuns:
        """The runs of ``packed``; none, if the content is malformed."""
        found: dict[str, int] = {}
        try:
            # What would not have been written is not decompressed.
            packed: Any = getattr(content, "value", content)  # boto3's Binary, recognised by its attribute
            text = zlib.decompressobj().decompress(packed, 2 * MAX_PACKED_BYTES)
            pairs: Any = parse(text.decode())
            for task_id, run in pairs:
                found[str(task_id)] = int(run)
        except (ValueError, TypeError, zlib.error):
            return cls(not_followed=not_followed)
        return cls(followed=len(found), not_followed=not_followed, _begun=found, _open=dict(found))

    @property
    def has_ended(self) -> bool:
        """Whether all of them had ended when they were read."""
        return not self._open

    def counts(self) -> RunCounts:
        """As they were read."""
        found: Mapping[str, int] = {name: self._ended.get(name, 0) for name in (*_ENDED.values(), "changed")}
        return RunCounts(followed=self.followed, **found)


def _ended(row: Row | None, run: int) -> str | None:
    """How a run of a task has ended; None: it has not."""
    if row is None or number_or(row.get(attr.RUN), 1) != run:
        return "changed"
    return _ENDED.get(text_or_none(row.get(attr.OUTCOME)) or str(state_of(row)))
