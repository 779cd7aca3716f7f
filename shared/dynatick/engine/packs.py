"""Runs the members of packs in the task pool of an invocation (protocol 20 to 22).

A member's attempt is one like any other. If it has completed, it is a bit of its pack. If not, the recorder gives it a
row of its own, before its pack is recorded. The coordinator calls everything here.

The members of a pack with a limit key begin one by one, as their key takes turns (23). Those that a rate limit allows
only at a later tick wait in their pack, which is deferred to it as a task would be.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, Result, Unknown, Written
from dynatick.domain.lifecycle import checkpoint, release
from dynatick.domain.packs import MemberRow, Pack, body_id, payloads_of
from dynatick.domain.task import Row, Status, Task
from dynatick.engine.claims import Claimed
from dynatick.engine.conditional_write import write, write_many
from dynatick.engine.counts import RecordResult
from dynatick.engine.limits import Turns
from dynatick.engine.ports import Clock, Store
from dynatick.engine.record import Attempted, Deferred, Done, Error, Unclear
from dynatick.errors import InvalidInput, StoreError

CHECKPOINT_AFTER: Final = timedelta(seconds=5)
"""So often it is written which members of a pack have completed: a process that dies then repeats no more than the
others."""

MAX_READY: Final = 2
"""Packs whose payloads are in memory before their members begin: a megabyte of JSON each, at most. Those of an action
with a rate limit are counted apart, those with limit keys not at all."""

MAX_IDLE: Final = timedelta(seconds=10)
"""A pack with a limit key of which no member could begin for so long is released, and waits for its turn again."""

_LOST: Final = "its process died, or did not finish in time, while it ran the pack of this member"


_Released = Callable[[Claimed, Pack, Result, int], None]


@dataclass(slots=True)
class _Open:
    """A claimed pack. ``waiting``: members that are not begun; ``running``: those in the task pool; ``recording``: how
    many are being recorded; ``unclear``: those of which it isn't known how they ended, and which get rows that say
    so."""

    claimed: Claimed
    pack: Pack
    kept_at: datetime  # when the table last had the members that have ended
    member: Task  # without what is a member's own
    limited: str = ""  # its action, if that has a rate limit
    in_turn: bool = False  # its members begin as their limit key takes turns
    idle_since: datetime | None = None  # none of its members runs
    payloads: Sequence[Mapping[str, object]] = ()
    in_common: Mapping[str, object] = field(default_factory=dict)  # of their rows
    waiting: deque[int] = field(default_factory=deque)
    done: int = 0
    excluded: int = 0
    extracted: int = 0
    running: set[int] = field(default_factory=set)
    recording: int = 0
    unclear: list[int] = field(default_factory=list)
    is_loaded: bool = False
    is_writing: bool = False  # a checkpoint is being written, or the body read
    is_lost: bool = False  # another process has it, or the table doesn't take a member's row: its lease will expire
    is_behind: bool = False  # more have ended since ``kept_at``
    # Its action is paused, or the task pool has not begun a member that it was given: no more begin in this invocation.
    is_stopped: bool = False
    deferred_until: datetime | None = None  # until then its rate limit lets no more members begin

    def __post_init__(self) -> None:
        self.done, self.excluded, self.extracted = self.pack.done, self.pack.excluded, self.pack.extracted

    @property
    def present(self) -> Pack:
        """The pack as it is now."""
        return replace(self.pack, done=self.done, excluded=self.excluded, extracted=self.extracted)

    def attribute(self) -> Mapping[str, object]:
        return self.present.to_attribute()

    def exclude_waiting(self) -> None:
        """Begins no more of them."""
        while self.waiting:
            self.excluded |= 1 << self.waiting.pop()

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.recording and not self.is_writing

    @property
    def to_begin(self) -> int:
        """How many members are still to begin in this invocation, as far as is known."""
        return 0 if self.is_stopped or self.is_lost or self.deferred_until is not None else len(self.waiting)

    @property
    def token(self) -> str:
        return str(self.claimed.task.lease)


class Packs:
    """The packs in flight of one invocation."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        threads: int,
        turns: Turns,
        in_one_thread: bool,
        may_begin: Callable[[], bool],
        is_paused: Callable[[str], bool],
        limited_actions: Collection[str],
        submit: Callable[[Claimed], None],
        in_io_thread: Callable[[Callable[[], object], Callable[..., None], Callable[[], None]], None],
        end: Callable[[Attempted], None],
        released: _Released,
        put_back: _Released,
        lost: Callable[[Claimed], None],
    ) -> None:
        """``is_paused``: by action. ``submit`` gives a member to the task pool. ``end`` records an attempt: of a pack,
        or of a member of which no more is known. ``released`` is called with each pack that was released, what it was
        to say, the result of that write, and how many of its members were not begun; ``put_back`` likewise, with each
        whose limit key let none begin; ``lost`` with each pack whose lease will expire."""
        self._store, self._clock, self._max_submitted = store, clock, 2 * threads
        self._turns, self._put_back = turns, put_back
        self._max_idle = timedelta() if in_one_thread else MAX_IDLE
        self._in_one_thread = in_one_thread
        self._may_begin, self._submit, self._in_io_thread = may_begin, submit, in_io_thread
        self._is_paused, self._limited_actions = is_paused, limited_actions
        self._end, self._released, self._lost = end, released, lost
        self._open: dict[str, _Open] = {}  # by their tokens, in the order of their claims
        self._submitted = Counter[str]()  # members in the task pool: those of each limited action, and all others
        self._in_turn: dict[str, _Open] = {}  # those with limit keys, by the same, in the order of their turns
        self._submitted_in_turn = 0  # members of these in the task pool

    @property
    def waiting(self) -> int:
        """Members that are claimed, and are still to begin here. What waits for its limit key holds up no other
        claim."""
        return sum(one.to_begin for one in self._open.values() if not one.in_turn)

    @property
    def rate_limited(self) -> int:
        """Those of them whose action has a rate limit."""
        return sum(one.to_begin for one in self._open.values() if one.limited and not one.in_turn)

    def start(self, claimed: Claimed, pack: Pack) -> None:
        """Takes a claimed pack. Of one that a dead process had, no member is run again (21)."""
        member = replace(claimed.task, attempt=1, attempts=(), batch_id=pack.batch_id)
        one = _Open(claimed, pack, kept_at=self._clock(), member=member, waiting=deque(pack.open()))
        one.limited = member.action if member.action in self._limited_actions else ""
        self._open[one.token] = one
        if self._turns.is_limited(claimed.task.limit_key) and claimed.task.attempt == 1:
            one.in_turn, self._in_turn[one.token] = True, one
        self.proceed()

    def proceed(self) -> None:
        """Begins members while there are threads for them, keeps what has completed, and releases packs for which
        there is no time. To be called after each event."""
        if not self._open:
            return
        may_begin = self._may_begin()
        ready = Counter(
            one.limited
            for one in self._open.values()
            if one.to_begin and (one.is_loaded or one.is_writing) and not one.in_turn
        )
        unbegun: list[_Open] = []
        for one in list(self._open.values()):
            one.is_stopped = one.is_stopped or self._is_paused(one.claimed.task.action)
            if one.is_lost:
                if one.is_idle and one.is_behind:
                    self._keep(one)  # so that its recovery does not repeat these
                elif one.is_idle:
                    self._leave(one)
                    self._lost(one.claimed)
                continue
            if one.is_idle and one.unclear and not (one.to_begin and may_begin):
                self._give_rows(one)
                continue
            if one.deferred_until is not None and self._clock() >= one.deferred_until and not one.is_idle:
                one.deferred_until = None  # others of its members took so long
            if one.is_behind and not one.is_writing and self._clock() - one.kept_at >= CHECKPOINT_AFTER:
                self._keep(one)
            if one.to_begin and may_begin:
                if one.is_loaded and not one.in_turn:
                    self._begin(one)
                elif not (one.is_loaded or one.is_writing) and (one.in_turn or ready[one.limited] < MAX_READY):
                    ready[one.limited] += not one.in_turn
                    self._load(one)
            elif one.is_idle and one.waiting and one.deferred_until is not None:
                self._defer(one, one.deferred_until)
            elif one.is_idle and one.waiting:
                unbegun.append(one)
            elif one.is_idle:
                self._complete(one)
        self._release(unbegun)

    def begin_in_turn(self, *, tasks_may: bool) -> bool:
        """Begins one member of each pack whose limit key lets it, and returns whether one began. ``tasks_may``: tasks
        with limit keys could be claimed, too."""
        if not self._in_turn or not self._may_begin():
            return False
        began = False
        for one in list(self._in_turn.values()):
            if self._submitted_in_turn >= self._max_submitted:
                break
            if not one.is_loaded or not one.to_begin:
                continue
            if self._turns.begins_member(one.claimed.task, one.pack.member_id(one.waiting[0]), tasks_may=tasks_may):
                began = True
                self._in_turn[one.token] = self._in_turn.pop(one.token)  # if there is no room for all, others are next
                self._begin_next(one)
        return began

    def release_idle(self) -> None:
        """Releases the packs that wait for their limit keys in vain: what holds the places may take long."""
        now, idle = self._clock(), list[_Open]()
        for one in self._in_turn.values():
            if not (one.is_loaded and one.is_idle and one.waiting) or one.is_lost:
                one.idle_since = None
                continue
            one.idle_since = one.idle_since or now
            if now - one.idle_since < self._max_idle:
                continue
            if one.unclear:  # released without their rows, they would run again
                self._give_rows(one)
                continue
            following = one.pack.member_id(one.waiting[0])
            if not (self._in_one_thread and self._turns.may_go_on(one.claimed.task, following)):
                idle.append(one)
        self._release(idle, self._put_back)

    def took_back(self, claimed: Claimed) -> None:
        """A member that the pool has not begun waits again."""
        self._turns.freed(claimed.task)
        self._waits_again(claimed.row).is_stopped = True

    def deferred(self, attempted: Attempted, seconds: float) -> None:
        """A member that its rate limit allows only at a later tick waits again, and no other one begins before."""
        one, at = self._waits_again(attempted.row), self._clock() + timedelta(seconds=seconds)
        one.deferred_until = at if one.deferred_until is None else min(at, one.deferred_until)

    def ended(self, attempted: Attempted) -> bool:
        """Takes a member's attempt that has ended. False: it did not complete, and gets a row of its own (20)."""
        one, n = self._pack_of(attempted.row)
        self._count_submitted(one, -1)
        one.running.discard(n)
        if not isinstance(attempted.outcome, Done) or attempted.outcome.items:
            one.recording += 1
            return False
        one.is_behind = True
        one.done |= 1 << n
        return True

    def recorded(self, attempted: Attempted, result: RecordResult) -> bool:
        """A member has a row of its own. False: the table did not take it; it gets one that says only that it runs."""
        one, n = self._pack_of(attempted.row)
        one.recording -= 1
        if result is not RecordResult.UNRECORDED:
            one.is_behind = True
            one.extracted |= 1 << n
        elif isinstance(attempted.outcome, Unclear):
            one.is_lost = True
        else:
            one.unclear.append(n)
        return n not in one.unclear

    @property
    def are_idle(self) -> bool:
        """Whether no member runs or is still to be recorded, and nothing is written."""
        return all(one.is_idle and not one.unclear for one in self._open.values())

    def part(self) -> None:
        """Gives rows to members that still run as the invocation ends, so that the others of their packs are not lost
        with them."""
        for one in self._open.values():
            one.unclear += sorted(one.running)
            one.running.clear()
        self.proceed()

    def has_parted_with(self, row: Row) -> bool:
        """Whether a member has got its row while it ran."""
        assert isinstance(row, MemberRow)
        one = self._open.get(row.pack_token)
        return one is None or row.n not in one.running

    # -- steps of one pack -----------------------------------------------------------------------------------------

    def _load(self, one: _Open) -> None:
        one.is_writing = True
        keys = [body_id(one.claimed.task.task_id), one.pack.batch_id]
        self._in_io_thread(
            partial(self._store.get_many, keys), partial(self._loaded, one), partial(self._not_loaded, one)
        )

    def _loaded(self, one: _Open, rows: Mapping[str, Row]) -> None:
        one.is_writing = False
        if _is_cancelled(rows.get(one.pack.batch_id)):
            one.exclude_waiting()
            self.proceed()
            return
        try:
            one.payloads = payloads_of(rows.get(body_id(one.claimed.task.task_id)), one.pack.span.members)
            one.in_common = one.pack.in_common(one.claimed.row)
        except InvalidInput as error:
            self._leave(one)
            self._end(self._attempted(one, Error(str(error), permanent=True)))
            return
        one.is_loaded = True
        self.proceed()

    def _not_loaded(self, one: _Open) -> None:
        one.is_writing = False
        self._release([one])

    def _begin(self, one: _Open) -> None:
        while one.waiting and self._submitted[one.limited] < self._max_submitted:
            self._begin_next(one)

    def _begin_next(self, one: _Open) -> None:
        n = one.waiting.popleft()
        if one.claimed.task.attempt > 1:
            self._extract(one, n, Error(_LOST, is_lost=True))
        else:
            one.running.add(n)
            self._count_submitted(one, 1)
            self._submit(self._member(one, n))

    def _give_rows(self, one: _Open) -> None:
        unclear, one.unclear = one.unclear, []
        for n in unclear:
            self._extract(one, n, Unclear())

    def _extract(self, one: _Open, n: int, outcome: Error | Unclear) -> None:
        one.recording += 1
        member = self._member(one, n)
        self._end(Attempted(member.task, member.row, outcome, one.claimed.task.started_at or self._clock()))

    def _count_submitted(self, one: _Open, change: int) -> None:
        if one.in_turn:
            self._submitted_in_turn += change
        else:
            self._submitted[one.limited] += change

    def _waits_again(self, row: Row) -> _Open:
        one, n = self._pack_of(row)
        self._count_submitted(one, -1)
        one.running.discard(n)
        one.waiting.appendleft(n)
        return one

    def _member(self, one: _Open, n: int) -> Claimed:
        payload = one.payloads[n]
        row = one.pack.member_row(one.in_common, one.token, n, payload)
        task_id, lease = str(row[attr.TASK_ID]), str(row[attr.LEASE])
        return Claimed(replace(one.member, task_id=task_id, payload=payload, lease=lease), row)

    def _keep(self, one: _Open) -> None:
        """Writes which members have ended, and looks whether the batch was cancelled meanwhile."""
        one.is_writing, one.is_behind, one.kept_at = True, False, self._clock()
        change = checkpoint(one.claimed.task, one.attribute())

        def keep() -> tuple[Result, Row | None]:
            result = write(self._store, change)
            try:
                return result, self._store.get(one.pack.batch_id)
            except StoreError:  # the next checkpoint looks again
                return result, None

        self._in_io_thread(keep, partial(self._checked, one), partial(self._unchecked, one))

    def _checked(self, one: _Open, kept: tuple[Result, Row | None]) -> None:
        result, batch = kept
        one.is_writing = False
        if isinstance(result, Unknown):
            self._unchecked(one)
        if not isinstance(result, (Written, Unknown)):
            one.is_lost = True
        elif _is_cancelled(batch):
            one.exclude_waiting()

    def _unchecked(self, one: _Open) -> None:
        one.is_writing = False
        one.is_behind = one.is_behind or not one.is_lost  # a lost one is left, kept or not

    def _release(self, packs: Sequence[_Open], released: _Released | None = None) -> None:
        """Releases packs, with what has completed: the rest runs in the next invocation, or in its turn."""
        changes: list[ConditionalUpdate] = []
        for one in packs:
            self._leave(one)
            change = release(one.claimed.task)
            if one.done or one.extracted:
                change = replace(change, set={**change.set, attr.PACK: one.attribute()})
            changes.append(change)
        for one, result in zip(packs, write_many(self._store, changes), strict=True):
            (released or self._released)(one.claimed, one.present, result, len(one.waiting))

    def _defer(self, one: _Open, at: datetime) -> None:
        """Defers a pack, with what has completed, as a task is deferred that its rate limit allows only then."""
        self._leave(one)
        seconds = max(at - self._clock(), timedelta()).total_seconds()
        self._end(self._attempted(one, Deferred(seconds, {attr.PACK: one.attribute()}, len(one.waiting))))

    def _complete(self, one: _Open) -> None:
        self._leave(one)
        self._end(self._attempted(one, Done(also={attr.PACK: one.attribute()})))

    def _attempted(self, one: _Open, outcome: Done | Deferred | Error) -> Attempted:
        task = one.claimed.task
        return Attempted(task, one.claimed.row, outcome, task.started_at or self._clock())

    def _leave(self, one: _Open) -> None:
        del self._open[one.token]
        self._in_turn.pop(one.token, None)

    def _pack_of(self, row: Row) -> tuple[_Open, int]:
        assert isinstance(row, MemberRow)
        return self._open[row.pack_token], row.n


def _is_cancelled(batch: Row | None) -> bool:
    return batch is not None and batch.get(attr.OUTCOME) == Status.CANCELLED
