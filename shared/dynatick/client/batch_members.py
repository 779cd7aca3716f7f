"""Members of batches that have no rows of their own: each as the row that it would have, and changes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dynatick.client.task_update import in_version, require_deletable
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION, Batch, is_of_pack, row_of_member, status_of_member
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Result, Unknown, Written, as_read
from dynatick.domain.lifecycle import state_of
from dynatick.domain.packs import (
    MAX_BATCH,
    Pack,
    body_id,
    is_row_of_member,
    member_lease,
    parse_member_id,
    payloads_of,
    spans_with,
)
from dynatick.domain.row import RowView
from dynatick.domain.selection import Selection
from dynatick.domain.task import Row, Status
from dynatick.engine.conditional_write import transact, write
from dynatick.engine.ports import Cancelled, Store
from dynatick.errors import InvalidInput, StoreError, TransitionRefused

_TRIES: Final = 20
_AS_READ: Final = (attr.OUTCOME, attr.STATUS, attr.LEASE, attr.LEASE_UNTIL, attr.PACK, attr.DUE_AT)


@dataclass(frozen=True, slots=True)
class Member:
    """A member without a row. ``row``: that of its ``pack``, in which it is number ``n``."""

    row: Row
    pack: Pack
    n: int

    @property
    def status(self) -> str:
        return status_of_member(self.row, self.pack, self.n)

    @property
    def lease(self) -> str | None:
        """The token of its claim. None: its pack was never claimed."""
        lease = self.row.get(attr.LEASE)
        return member_lease(lease, self.n) if isinstance(lease, str) else None

    def noting(self, pack: Pack) -> ConditionalUpdate:
        """The write of ``pack``, on condition that its row is as it was read."""
        value = pack.to_attribute()
        return ConditionalUpdate(
            task_id=str(self.row[attr.TASK_ID]),
            set={attr.PACK: value},
            conditions=as_read(self.row, *_AS_READ),
            mark=(Is(attr.PACK, value),),
        )

    def as_row(self, store: Store) -> Row:
        """As the row that it would have."""
        body = store.get(body_id(str(self.row[attr.TASK_ID])))
        return row_of_member(self.row, self.pack, self.n, _payloads(body, self.pack)[self.n])


def find_member(store: Store, task_id: str) -> Member | None:
    """The member with this id, for which there is no row; None: there is no such member, or it has a row."""
    named = parse_member_id(task_id)
    batch_row = None if named is None else store.get(named[0])
    if named is None or batch_row is None:
        return None
    batch_id, number = named
    try:
        batch = Batch.of(batch_row)
        total = None if batch is None else batch.total if batch.members is None else batch.members
        total = MAX_BATCH if total is None else total
        if batch is None or number >= total:
            return None
        ids = [span.pack_id(batch_id) for span in spans_with(number, total)]
        rows = store.get_many(ids)
        for row in (rows[pack_id] for pack_id in ids if pack_id in rows):
            pack = Pack.of(row)
            if pack is not None and not pack.extracted >> (n := number - pack.span.first) & 1:
                return Member(row, pack, n)
    except InvalidInput:  # a row that was written by hand
        pass
    return None


def row_of(store: Store, task_id: str) -> Row | None:
    """The row of a task, read consistently; of a member without one, as it would be. None: there is no such task."""
    row = store.get(task_id)
    if row is not None or parse_member_id(task_id) is None:
        return row
    member = find_member(store, task_id)
    return store.get(task_id) if member is None else member.as_row(store)  # it may have got one just now


def change_member(store: Store, task_id: str, decide: Callable[[Row], ConditionalUpdate]) -> Row | None:
    """Changes a member without a row as ``decide`` changes the row that it would have, on condition that its pack does
    not run (22), and returns it; None: there is no such member.

    It gets that row, in one transaction with the mark in its pack, and is a task like any other from then on. Only
    a cancelled one needs none. Raises TransitionRefused and TaskChanged (from ``decide``), InvalidInput if its payload
    is no longer there, StoreError.
    """

    def settle(member: Member) -> tuple[Result | Cancelled, Row]:
        row = member.as_row(store)
        change = decide(row)
        _require_pack_at_rest(member, task_id)
        changed = change.applied_to(row)
        if changed.get(attr.OUTCOME) == Status.CANCELLED:
            pack = member.pack.with_excluded(member.n)
            return write(store, member.noting(pack)), row_of_member(member.row, pack, member.n, _payload(row))
        if not _payload(row):  # a task without its payload would do something else
            payloads_of(store.get(body_id(str(member.row[attr.TASK_ID]))), member.pack.span.members)
        if RowView(row).is_released:  # as its pack was: with a row of its own, it waits as any task
            changed = {name: value for name, value in changed.items() if name != attr.LEASE_UNTIL}
            changed[attr.STATUS] = str(Status.SCHEDULED)
        noted = member.noting(member.pack.with_extracted(member.n))
        return transact(store, noted, changed, made_by=replace(change, task_id=task_id)), changed

    return _settled(store, task_id, settle)


def delete_member(store: Store, task_id: str, version: str | None) -> Row | None:
    """Deletes a member without a row, on condition that its pack does not run (22), and returns it as it was; None:
    there is no such member. Raises as ``task_update.delete``."""

    def settle(member: Member) -> tuple[Result, Row]:
        row = member.as_row(store)
        require_deletable(row)
        if version is not None:
            in_version(row, version)
        _require_pack_at_rest(member, task_id)
        return write(store, member.noting(member.pack.with_extracted(member.n))), row

    return _settled(store, task_id, settle)


def note_row(store: Store, row: Row) -> None:
    """Has the pack of a member know that this has a row, before it is deleted: else the member would get another one.
    That is needed if the pack's process has died since. Raises TransitionRefused while the pack runs."""
    if attr.BATCH_ID not in row or RowView(row).is_pack:
        return
    task_id = RowView(row).task_id
    require_deletable(row)

    def settle(member: Member) -> tuple[Result, Row]:
        if not is_row_of_member(row, member.pack.batch_id, member.row.get(attr.CREATED_AT)):  # of an earlier batch
            return Written(), row
        _require_pack_at_rest(member, task_id)
        return write(store, member.noting(member.pack.with_extracted(member.n))), row

    _settled(store, task_id, settle)


def _settled(store: Store, task_id: str, settle: Callable[[Member], tuple[Result | Cancelled, Row]]) -> Row | None:
    for _ in range(_TRIES):
        if (member := find_member(store, task_id)) is None:
            return None
        result, row = settle(member)
        if isinstance(result, Unknown | Cancelled):
            raise StoreError(f"cannot change {task_id!r}: {result.error}")
        if isinstance(result, Written):
            return row
    raise StoreError(f"cannot change {task_id!r}: other requests changed its pack {_TRIES} times")


def _require_pack_at_rest(member: Member, task_id: str) -> None:
    """Raises TransitionRefused for a member that has ended, or has a row, while the others of its pack run: what its
    process writes of the pack would undo the change."""
    if state_of(member.row) == Status.RUNNING and not RowView(member.row).is_released:
        is_a = f"{member.status}, and others of its pack run"
        raise TransitionRefused(task_id, "change", member.status, (), is_a=is_a, instead="try it again in a moment")


def members_of(store: Store, row: Row, pack: Pack, status: str | None) -> Iterator[Row]:
    """The members of a pack, in order of number, of one status or of all. Reads what it needs in one request.

    One whose id another task has is left out: its letter is all there is of it.
    """
    statuses = {n: status_of_member(row, pack, n) for n in range(pack.span.members) if not pack.extracted >> n & 1}
    wanted = {n for n, own in statuses.items() if status in (None, own)}
    extracted = [pack.member_id(n) for n in range(pack.span.members) if n not in statuses]
    body = body_id(str(row[attr.TASK_ID]))
    rows = store.get_many([*extracted, *([body] if wanted else [])])
    payloads = _payloads(rows.get(body), pack) if wanted else ()
    for n in range(pack.span.members):
        if n in wanted:
            yield row_of_member(row, pack, n, payloads[n])
            continue
        own = rows.get(pack.member_id(n))
        if own is not None and is_of_pack(own, row, pack) and status in (None, own.get(attr.STATUS)):
            yield own


def waiting_members(store: Store, row: Row) -> Iterator[Row]:
    """The members of a pack that wait with it; none of a malformed one."""
    pack = pack_of(row)
    return iter(()) if pack is None else members_of(store, row, pack, state_of(row))


def exported(store: Store, rows: Iterator[Row], selection: Selection) -> Iterator[Row]:
    """Rows, with the members of packs in the place of these, as tasks of their own. Batches are left out: a task that
    is inserted again belongs to none."""
    for row in rows:
        pack = pack_of(row)
        if pack is not None:
            yield from _fitting(members_of(store, row, pack, None), pack, selection)
        elif row.get(attr.ACTION) != BATCH_ACTION:
            yield row


def exported_after(store: Store, member: Member, selection: Selection) -> Iterator[Row]:
    """Those members of the pack of one that come after it."""
    rows = _fitting(members_of(store, member.row, member.pack, None), member.pack, selection)
    last = member.pack.member_id(member.n)
    return (row for row in rows if str(row[attr.TASK_ID]) > last)


def _fitting(rows: Iterator[Row], pack: Pack, selection: Selection) -> Iterator[Row]:
    """Those without rows of their own, which are exported where they are listed."""
    without = {pack.member_id(n) for n in range(pack.span.members) if not pack.extracted >> n & 1}
    for row in rows:
        bucket, action, error = str(row.get(attr.TASK_DATE_TIME)), row.get(attr.ACTION), row.get(attr.ERROR)
        if row[attr.TASK_ID] in without and selection.fits(bucket, state_of(row), action, None, error):
            yield row


def pack_of(row: Row) -> Pack | None:
    """The pack of a row; None: it has none, or a malformed one."""
    try:
        return Pack.of(row)
    except InvalidInput:  # it was written by hand
        return None


def _payloads(body: Row | None, pack: Pack) -> Sequence[Mapping[str, object]]:
    """The payloads of a pack; empty ones if they are missing, a year after it was due."""
    try:
        return payloads_of(body, pack.span.members)
    except InvalidInput:
        return [{}] * pack.span.members


def _payload(row: Row) -> Mapping[str, object]:
    payload = row[attr.PAYLOAD]
    assert isinstance(payload, Mapping)
    return payload
