"""The shard while a pass holds it: renewing the lease, the end write, noticing other ticks (protocol 1, 4, 16)."""

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
    """A shard whose cursor was taken with ``token``; ``window`` keeps the cursor as last known."""

    store: Store
    clock: Clock
    window: Window
    token: str
    holding: bool = True
    lost: bool = False  # another process has taken it
    renew_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.renew_at = self.clock() + SHARD_LEASE / 3

    @property
    def is_to_be_renewed(self) -> bool:
        return self.holding and self.clock() >= self.renew_at

    def keep(self) -> None:
        """Renews the lease when it is time to, and keeps how far the pass has come, so that polling the buckets of a
        long pause is not for nothing if it is cut short. Raises StoreError; the shard counts as given up then."""
        if self.is_to_be_renewed:
            self.renew_at = self.clock() + SHARD_LEASE / 3
            if self._save(lambda _: replace(self.window.progress(), lease_until=self.clock() + SHARD_LEASE)):
                self.window.forget()

    def open(self, until: datetime) -> bool:
        """Says that this process may write occurrences into closed buckets until then, so that they are not taken for
        drained before those show up, should it be killed. Raises StoreError, as ``keep``; False if the shard is lost.
        """
        others = self.window.others_until
        latest = until if others is None else max(until, others)
        while self.holding and not self.window.opened:
            self.window.opened = self._save(lambda cursor: replace(cursor, open_until=latest))
        return self.holding

    def end(self, note: Callable[[Cursor], Cursor]) -> bool:
        """The end write (4), with what ``note`` adds. Raises StoreError, as ``keep``.

        False if another tick has closed buckets meanwhile: then the window knows them now, and the shard is still held.
        """
        if self._save(lambda _: note(self.window.at_the_end())):
            self.holding = False
        return not self.holding

    def _save(self, change: Callable[[Cursor], Cursor]) -> bool:
        """Writes the cursor; False if it had been changed: then its present state is taken over, or the shard lost."""
        try:
            saved = save(self.store, self.window.cursor, change(self.window.cursor))
            if saved is not None:
                self.window.cursor = saved
                return True
            present = read_cursor(self.store, self.window.cursor.shard, self.clock())
        except DynatickError:
            self.holding = False
            raise
        if present.lease == self.token:
            self.window.cursor, self.window.closed_at = present, self.clock()
        else:
            self.holding, self.lost = False, True
        return False
