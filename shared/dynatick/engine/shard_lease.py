"""The shard lease of a pass: renewing it, the end write, and noticing that another tick has closed more buckets
(protocol 1, 4, 16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from dynatick.engine.cursor import Cursor, read_cursor, save
from dynatick.engine.poll_window import Window
from dynatick.engine.ports import Clock, Store
from dynatick.engine.rules import SHARD_LEASE
from dynatick.errors import DynatickError


@dataclass(slots=True)
class ShardLease:
    """The lease that was acquired with ``token``. ``window`` keeps the cursor as last known.

    Each method raises StoreError if the table doesn't answer; the lease then no longer counts as held.
    """

    store: Store
    clock: Clock
    window: Window
    token: str
    is_held: bool = True
    is_lost: bool = False  # another process has acquired it
    renew_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.renew_at = self.clock() + SHARD_LEASE / 3

    @property
    def must_renew(self) -> bool:
        return self.is_held and self.clock() >= self.renew_at

    def renew(self) -> None:
        """Renews the lease if a third of it is over, and saves how far the pass has come: if the pass is killed, the
        next one doesn't poll the buckets of a long pause again."""
        if self.must_renew:
            self.renew_at = self.clock() + SHARD_LEASE / 3
            if self._save(lambda _: replace(self.window.progress(), lease_until=self.clock() + SHARD_LEASE)):
                self.window.drop_saved()

    def keep_open(self, until: datetime) -> bool:
        """Writes to the cursor that this process may write occurrences into closed buckets until then. If it is killed,
        those buckets don't count as drained before its occurrences show up in the index. False: the lease is lost."""
        others = self.window.others_until
        latest = until if others is None else max(until, others)
        while self.is_held and not self.window.opened:
            self.window.opened = self._save(lambda cursor: replace(cursor, open_until=latest))
        return self.is_held

    def release(self, complete: Callable[[Cursor], Cursor]) -> bool:
        """The end write (4), with what ``complete`` adds to the cursor.

        False: another tick has closed more buckets; the window knows them now, and the lease is still held.
        """
        if self._save(lambda _: complete(self.window.final_cursor())):
            self.is_held = False
        return not self.is_held

    def _save(self, change: Callable[[Cursor], Cursor]) -> bool:
        """Writes the cursor. False: it had changed; the window has its present state now, or the lease is lost."""
        try:
            saved = save(self.store, self.window.cursor, change(self.window.cursor), writer=self.token)
            if saved is not None:
                self.window.cursor = saved
                return True
            present = read_cursor(self.store, self.window.cursor.shard, self.clock())
        except DynatickError:
            self.is_held = False
            raise
        if present.lease == self.token:
            self.window.cursor, self.window.closed_at = present, self.clock()
        else:
            self.is_held, self.is_lost = False, True
        return False
