"""Failed tasks in groups of the same error: what the page of the failures and ``dynatick failure list`` show. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from dynatick.client.views import TaskEntry
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.task import Status
from dynatick.domain.view import Json, View
from dynatick.errors import InvalidInput

FINGERPRINT_CHARACTERS = 10
MAX_TASKS = 50
"""Of a group, the latest tasks that are kept."""

_MAX_LINE = 1000
_MAX_PATTERN = 200  # cut after the replacements: a longer number moves no word out of it
_MAX_ERRORS = 20  # of a group: different lines that are counted
_MAX_KEPT = 4 * MAX_TASKS  # until the oldest are dropped

_GAP = "…"
_MAIL = r"[^\s'\"<>(),;:]+@[^\s'\"<>(),;:]+"
_NUMBER = r"(?<![\w-])[\w-]*\d[\w-]*(?:[.,:]\d[\w-]*)*"  # also an id, a date, an address of a host
_DIFFERS = re.compile(f"({_MAIL}|{_NUMBER}|{_GAP})")


def error_line(error: str | None) -> str:
    """The first line of an error, which begins with its type."""
    return (error or "").strip().partition("\n")[0][:_MAX_LINE]


def error_pattern(error: str | None) -> str:
    """The first line of an error, with ``…`` for each address and for each word with a digit: the same for errors that
    differ in an id, an address or a number only."""
    return _DIFFERS.sub(_GAP, error_line(error))[:_MAX_PATTERN]


def fingerprint_of(error: str | None) -> str:
    """Names the group of an error: ten hexadecimal digits."""
    return hashlib.sha256(error_pattern(error).encode(errors="replace")).hexdigest()[:FINGERPRINT_CHARACTERS]


@dataclass(frozen=True, slots=True)
class HasFingerprint:
    """Whether an error is of a group."""

    fingerprint: str

    def __call__(self, error: str) -> bool:
        return fingerprint_of(error) == self.fingerprint


def has_fingerprint(fingerprint: str) -> HasFingerprint:
    """Whether an error is of a group, as a filter of ``select``. Raises InvalidInput for what is no fingerprint."""
    if re.fullmatch(f"[0-9a-f]{{{FINGERPRINT_CHARACTERS}}}", fingerprint) is None:
        expected = f"expected the {FINGERPRINT_CHARACTERS} digits that dynatick failure list shows"
        raise InvalidInput("fingerprint", fingerprint, expected)
    return HasFingerprint(fingerprint)


def shared_line(first: str, second: str) -> str:
    """What two lines of one group have in common: ``…`` only where they differ."""
    if first == second:
        return first
    pairs = zip(_DIFFERS.split(first), _DIFFERS.split(second), strict=False)  # far behind they may differ in words
    return "".join(one if one == other else _GAP for one, other in pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureGroup(View):
    """Failed tasks with the same error."""

    fingerprint: Annotated[str, "Names the group: of the error's first line, with every number and address replaced."]
    action: Annotated[str | None, "That of the latest of them."]
    actions: Annotated[Mapping[str, int], "How many tasks each action has, the most first."]
    error: Annotated[str | None, "The first line of their errors, with … where they differ."]
    count: Annotated[int, "How many tasks."]
    first: Annotated[datetime, "When the first of them failed."]
    last: Annotated[datetime, "When the latest failed."]
    task_id: Annotated[str, "The latest of them."]
    minutes: Annotated[Mapping[int, int], Json(hidden=True)] = field(default_factory=dict, repr=False)  # when, how many
    errors: Annotated[Mapping[str, int], Json(hidden=True)] = field(default_factory=dict, repr=False)  # by their line
    tasks: Annotated[tuple[TaskEntry, ...], Json(hidden=True)] = field(default=(), repr=False)  # the latest, up to 50

    def is_new_since(self, instant: datetime | None, since: datetime) -> bool:
        """Whether none of them failed before an instant. ``since``: from when on they were read; of what was before
        nothing is known."""
        return instant is not None and since <= instant <= self.first


@dataclass(slots=True)
class _Group:
    """A group as it grows."""

    fingerprint: str
    error: str
    first: datetime
    last: datetime
    latest: TaskEntry
    count: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    minutes: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    tasks: list[TaskEntry] = field(default_factory=list)

    def add(self, group: FailureGroup) -> None:
        self.error = shared_line(self.error, group.error or "")
        self.first = min(self.first, group.first)
        if (group.last, group.task_id) >= (self.last, self.latest.task_id):
            self.last, self.latest = group.last, group.tasks[0]
        self.count += group.count
        self.actions.update(group.actions)
        self.minutes.update(group.minutes)
        for line, tasks in group.errors.items():
            if line in self.errors or len(self.errors) < _MAX_ERRORS:
                self.errors[line] += tasks
        self.tasks += group.tasks
        if len(self.tasks) > _MAX_KEPT:
            self.tasks = self._latest_tasks()

    def _latest_tasks(self) -> list[TaskEntry]:
        return sorted(self.tasks, key=lambda task: (_failed_at(task), task.task_id), reverse=True)[:MAX_TASKS]

    def shown(self) -> FailureGroup:
        return FailureGroup(
            fingerprint=self.fingerprint,
            action=self.latest.action,
            actions=dict(self.actions.most_common()),
            error=self.error or None,
            count=self.count,
            first=self.first,
            last=self.last,
            task_id=self.latest.task_id,
            minutes=dict(self.minutes),
            errors=dict(self.errors.most_common()),
            tasks=tuple(self._latest_tasks()),
        )


@dataclass(slots=True)
class FailureGroups:
    """Groups failed tasks by the fingerprint of their error."""

    _groups: dict[str, _Group] = field(default_factory=dict)

    def add(self, entry: TaskEntry) -> None:
        """Adds a task, if it has failed."""
        if entry.status != Status.FAILED:
            return
        at, line = _failed_at(entry), error_line(entry.error)
        self.update(
            [
                FailureGroup(
                    fingerprint=fingerprint_of(line),
                    action=entry.action,
                    actions={} if entry.action is None else {entry.action: 1},
                    error=line,
                    count=1,
                    first=at,
                    last=at,
                    task_id=entry.task_id,
                    minutes={minute_of(at): 1},
                    errors={line: 1},
                    tasks=(entry,),
                )
            ]
        )

    def update(self, groups: Iterable[FailureGroup]) -> None:
        for one in groups:
            group = self._groups.get(one.fingerprint)
            if group is None:
                group = _Group(one.fingerprint, one.error or "", one.first, one.last, one.tasks[0])
                self._groups[one.fingerprint] = group
            group.add(one)

    def by_impact(self, maximum: int | None = None) -> list[FailureGroup]:
        """The group with the most tasks first; of equals the one that failed last."""
        shown = (group.shown() for group in self._groups.values())
        return sorted(shown, key=lambda group: (-group.count, -group.last.timestamp()))[:maximum]


def _failed_at(entry: TaskEntry) -> datetime:
    return entry.finished_at or Bucket.parse(entry.bucket).instant
