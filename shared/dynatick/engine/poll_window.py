"""Which buckets a pass looks at, and through where they are drained for good (protocol 2 to 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from dynatick.domain.instants import EPOCH
from dynatick.engine.cursor import Cursor
from dynatick.engine.rules import Rules


@dataclass(slots=True)
class Look:
    """What this pass knows of one bucket."""

    began: datetime  # when its latest look began
    complete: bool = False  # whether that look read all pages
    busy: int = 0  # rows of that look that others hold, or that must wait
    in_flight: int = 0  # rows that this pass is claiming, or has claimed and not seen recorded
    held: list[str] = field(default_factory=list)  # ids among the busy that may have to be put off


@dataclass(slots=True)
class Window:
    """The buckets (S, C] of one shard during one pass."""

    cursor: Cursor
    rules: Rules
    closed_at: (
        datetime  # a time after which nothing was written into a bucket up to C: read after the closing write's answer
    )
    looks: dict[int, Look] = field(default_factory=dict)
    opened: bool = False  # whether this pass writes occurrences of schedules into closed buckets
    written_from: int | None = None  # the first bucket that it has written any into
    written_at: datetime | None = None  # a time after which it has written none
    writing: int = 0  # of them, under way
    others_until: datetime | None = field(init=False)  # until then another pass may, which was not seen to end

    def __post_init__(self) -> None:
        self.others_until = self.cursor.open_until

    @property
    def final_from(self) -> datetime:
        """A look that begins from then on shows all that was written into buckets up to the mark (3).

        Occurrences come into closed buckets. Those of this pass it knows; those of a pass that may have been killed
        have to show up in the index too.
        """
        settled = (
            self.cursor.checkpoint_at
            if self.others_until is None
            else max(self.cursor.checkpoint_at, self.others_until)
        )
        return settled + self.rules.index_settled_after

    def hold(self, minute: int) -> Look:
        """The look at a bucket, which may be still to come."""
        look = self.looks.get(minute)
        if look is None:
            look = self.looks[minute] = Look(EPOCH)
        return look

    def due(self, now: datetime) -> Iterator[int]:
        """Every minute of (S, C], oldest first: not only the grid's, for the grid may have changed (2).

        Left out are buckets up to the mark between the newest two ticks and their final look: they had a full look, and
        another one before the index has settled would prove nothing. Buckets after the mark are not: as long as a row
        that others hold keeps S from meeting the mark, they have no final look, and must not wait for one.
        """
        c = self.cursor
        ripe = now >= self.final_from
        quiet = min(c.polled_through, c.checkpoint, c.closed_through - 2 * self.rules.grid.tick_minutes)
        for minute in range(c.drained_through + 1, c.closed_through + 1):
            if ripe or minute > quiet:
                yield minute

    def begin(self, minute: int, began: datetime) -> None:
        """A look at a bucket begins."""
        look = self.hold(minute)
        look.began, look.complete, look.busy, look.held = began, False, 0, []

    def reach(self) -> int:
        """The new S: through where every bucket had a final look that left nothing open (3)."""
        c = self.cursor
        reached = c.drained_through
        for minute in range(c.drained_through + 1, c.checkpoint + 1):
            look = self.looks.get(minute)
            if look is None or not look.complete or look.busy or look.in_flight or not self._is_final(look):
                break
            reached = minute
        return reached

    def polled_through(self) -> int:
        """Through where every bucket had a full look that left nothing, in this pass or before."""
        minute = self.cursor.polled_through
        while minute < self.cursor.closed_through and (look := self.looks.get(minute + 1)) is not None:
            if not look.complete or look.busy or look.in_flight:
                break
            minute += 1
        return minute

    def to_defer(self) -> Iterator[tuple[int, Look]]:
        """The buckets that had a final look, and which nothing but rows holds back that may be put off (3)."""
        for minute in range(self.cursor.drained_through + 1, self.cursor.checkpoint + 1):
            look = self.looks.get(minute)
            if look is None or not look.complete or not self._is_final(look):
                return
            if look.held and not look.in_flight and len(look.held) == look.busy:
                yield minute, look

    def progress(self) -> Cursor:
        """The cursor as far as the pass has come: S and the looks advanced, a new mark once S has met the old (4)."""
        c = self.cursor
        drained = self.reach()
        now = replace(c, drained_through=drained, polled_through=self.polled_through())
        if drained >= c.checkpoint:
            now = replace(now, checkpoint=c.closed_through, checkpoint_at=self.closed_at)
        if self.written_at is not None and self.written_from is not None and self.written_from <= now.checkpoint:
            now = replace(now, checkpoint_at=max(now.checkpoint_at, self.written_at))
        return now

    def at_the_end(self) -> Cursor:
        """The cursor as the end write sets it: as far as the pass has come, the lease released."""
        end = replace(self.progress(), lease=None, lease_until=None)
        if self.opened and not self.writing:
            end = replace(end, open_until=self.others_until)
        return end

    def forget(self) -> None:
        """Drops what the cursor says by now, so that memory does not grow with the window."""
        c = self.cursor
        self.looks = {
            minute: look
            for minute, look in self.looks.items()
            if minute > c.polled_through
            or not look.complete
            or look.busy
            or look.in_flight
            or (minute > c.drained_through and self._is_final(look))
        }

    def _is_final(self, look: Look) -> bool:
        return look.began >= self.final_from

    def wrote(self, minute: int, now: datetime) -> None:
        """An occurrence was written into a bucket."""
        self.written_from = minute if self.written_from is None else min(self.written_from, minute)
        self.written_at = now
