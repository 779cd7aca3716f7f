"""How a pass divides a large bucket between itself and workers. Pure.

The pass has measured its own rate: how many tasks ended in how many seconds. What it can run soon, it keeps; of the
rest it makes ranges of ids, as equal as the order of ids allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

SOON = timedelta(seconds=10)
"""What a process can run within this time, it keeps."""

MIN_WORK, MAX_WORK = timedelta(seconds=2), timedelta(seconds=60)
"""How long a worker should take for its range. Less isn't worth the start of a process."""

START = timedelta(seconds=5)
"""How long a worker takes to begin, after a cold start."""

SPARE = 1.25
"""How many times the time that its range should take a worker gets."""

GRAIN = 25
"""Ranges end at every 25th id, so that an outline needs little memory."""

_MIN_MEASURED, _MAX_MEASURED = timedelta(seconds=2), timedelta(seconds=5)  # the first claims take a moment


def measured_rate(ended: int, running: int, elapsed: timedelta, threads: int) -> float | None:
    """Tasks a second. ``ended`` and ``running``: how many have and are, ``elapsed``: since the first one began. None:
    too early to say. What runs counts by half, for on average half of it is done."""
    if elapsed < _MIN_MEASURED or (ended < threads and elapsed < _MAX_MEASURED):
        return None
    return max(ended + running / 2, 1) / elapsed.total_seconds()


def longest_range(left: timedelta) -> timedelta:
    """How long a worker may take for a range if its order must be over when so much time is left."""
    return min(MAX_WORK, (left - START) / SPARE)


def allowed_time(tasks: int, rate: float) -> timedelta:
    """How long a worker gets for this number of tasks."""
    return START + timedelta(seconds=SPARE * tasks / rate)


@dataclass(slots=True)
class Outline:
    """The ids of a part of a bucket, in order; only every 25th and the last are kept."""

    count: int = 0
    last: str = ""
    marks: list[str] = field(default_factory=list)

    def add(self, task_id: str) -> None:
        self.count, self.last = self.count + 1, task_id
        if self.count % GRAIN == 0:
            self.marks.append(task_id)

    def id_at(self, grains: int) -> str:
        """The last id of the first ``grains`` times 25."""
        return self.marks[grains - 1] if grains <= len(self.marks) else self.last


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The ids in (after, through], and how many they are. A worker begins them in their order: it has ended once none
    after ``probe`` is open."""

    after: str
    through: str
    tasks: int
    probe: str


def divide(outline: Outline, *, rate: float, workers: int, longest: timedelta) -> list[Part]:
    """The parts for workers. What is before the first and after the last is for the pass itself.

    Each process gets the same, unless that takes longer than ``longest``. Empty: the pass can run it all soon.
    """
    if outline.count <= rate * SOON.total_seconds():
        return []
    share = min(outline.count / (workers + 1), rate * longest.total_seconds())
    grains = -(-int(max(share, rate * MIN_WORK.total_seconds(), 1)) // GRAIN)
    total = -(-outline.count // GRAIN)
    parts: list[Part] = []
    for first in range(grains, total, grains)[:workers]:
        end = min(first + grains, total)
        tasks = min(end * GRAIN, outline.count) - first * GRAIN
        parts.append(
            Part(after=outline.id_at(first), through=outline.id_at(end), tasks=tasks, probe=outline.id_at(end - 1))
        )
    return parts
