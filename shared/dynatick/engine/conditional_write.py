"""Every conditional write goes through here, and recognises its own effect.

If the connection breaks after a write took effect, the SDK sends it again, and the answer is "a condition failed"; or
there is no answer at all. Then the row decides: if it shows the write's mark, the write took effect, and nobody need
know that its answer was lost. A write that is answered as usual costs no read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Lost, Result, Unknown, Written
from dynatick.domain.row import RowView
from dynatick.domain.task import Row
from dynatick.engine.ports import Cancelled, Store, StoreFailure
from dynatick.errors import InvalidInput, ItemTooLarge, StoreError

T = TypeVar("T")
_TRIES = 10
_DECISIVE = (attr.STATUS, attr.OUTCOME, attr.LEASE, attr.LEASE_UNTIL)
"""What callers ask of a row that could not be written, beside what its conditions name."""

_UNIQUE = (attr.LEASE, attr.WRITTEN_BY, attr.CREATED_AT, attr.INSERT_TOKEN)
"""The attributes of a new row, the first that it has, that no other creation of it would have."""


def write(store: Store, change: ConditionalUpdate) -> Result:
    """One conditional write: ``write_many`` for one."""
    return _settled(store, [change], [store.write(change)])[0]


def write_many(store: Store, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
    """Many conditional writes, in batches; one result for each, in order. Ids must differ.

    ``Lost`` has the present row, in full if the change asked for the row as written; None: it doesn't exist. Doesn't
    raise: if the table doesn't answer, results are Unknown.
    """
    if not changes:
        return ()
    try:
        results = store.write_many(changes)
    except StoreError as error:  # some may have taken effect
        results = [Unknown(str(error))] * len(changes)
    return _settled(store, changes, results)


def transact(
    store: Store,
    change: ConditionalUpdate | None = None,
    row: Row | None = None,
    items: Sequence[Mapping[str, object]] = (),
    *,
    made_by: ConditionalUpdate,
    token: str | None = None,
) -> Result | Cancelled:
    """Some of these in one transaction: a conditional write, a row put if its id is free, and entries for other tables.

    ``made_by``: the change whose mark shows in the row that is put, or else changed, if the transaction took effect.
    ``token``: so that it may be sent once more if it got no answer. Doesn't raise.
    """
    result: Result | Cancelled = Unknown("")
    for _ in range(1 if token is None else 2):
        try:
            result = store.transact(change, row, items, token=token)
        except InvalidInput as error:
            return Cancelled(str(error), permanent=True)
        except StoreError as error:
            result = Unknown(str(error))
        if not isinstance(result, Unknown) or result.too_large:
            break
    if isinstance(result, Written | Cancelled) or (isinstance(result, Unknown) and result.too_large):
        return result
    try:
        return _judged(made_by, result, store.get(made_by.task_id))
    except StoreError as error:
        return result if isinstance(result, Unknown) else Unknown(str(error))


def create(store: Store, row: Row) -> bool:
    """Puts a row if its id is free; False if another row has it. Raises ItemTooLarge, and StoreError if it is not known
    whether the row was put."""
    try:
        return store.create(row)
    except ItemTooLarge:
        raise
    except StoreError:
        is_ours = _is_creation(row, store.get(RowView(row).task_id))
        if is_ours is None:
            raise
        return is_ours


def create_many(store: Store, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
    """``create`` for many, in batches; one result for each row, in order. Ids must differ. Doesn't raise."""
    if not rows:
        return ()
    answers: list[bool | StoreFailure]
    try:
        answers = list(store.create_many(rows))
    except StoreError as error:
        answers = [StoreFailure(str(error))] * len(rows)
    unclear = [n for n, one in enumerate(answers) if isinstance(one, StoreFailure) and not one.too_large]
    if unclear:
        try:
            present = store.get_many([RowView(rows[n]).task_id for n in unclear])
        except StoreError:
            return answers
        for n in unclear:
            is_ours = _is_creation(rows[n], present.get(RowView(rows[n]).task_id))
            answers[n] = answers[n] if is_ours is None else is_ours
    return answers


def change_row(
    store: Store, row_id: str, to: str, decide: Callable[[Row | None], tuple[T, ConditionalUpdate | None]]
) -> T:
    """Changes a row of our own that other processes change too, and returns what ``decide`` does.

    ``decide`` gets the row as it is, None if it is not there, and may raise. It returns the change as well, conditional
    on what it has read; None: the row stays as it is. If others were first, it decides again. A row that is not there
    is created, with what the change sets. ``to``: what for, in an error.

    Raises StoreError if the table doesn't answer, or others change the row all the time.
    """
    for _ in range(_TRIES):
        row = store.get(row_id)
        found, change = decide(row)
        if change is None:
            return found
        if row is None:
            if create(store, {attr.TASK_ID: row_id, **change.set}):
                return found
            continue
        result = write(store, change)
        if isinstance(result, Unknown):
            raise StoreError(f"cannot {to}: it is not known whether {row_id} was changed: {result.error}")
        if isinstance(result, Written):
            return found
    raise StoreError(f"cannot {to}: {row_id} was changed by others {_TRIES} times")


def _settled(store: Store, changes: Sequence[ConditionalUpdate], results: Sequence[Result]) -> list[Result]:
    """The results, with what the rows show of the writes whose answers leave it open."""
    settled = list(results)
    unread: list[int] = []
    for n, (change, result) in enumerate(zip(changes, results, strict=True)):
        if isinstance(result, Lost) and result.present is not None:
            settled[n] = _judged(change, result, result.present)
        elif isinstance(result, Lost) or (isinstance(result, Unknown) and not result.too_large):
            unread.append(n)
    if unread:
        try:
            rows = _read(store, [changes[n] for n in unread])
        except StoreError as error:
            for n in unread:
                result = results[n]
                settled[n] = result if isinstance(result, Unknown) else Unknown(str(error))
        else:
            for n in unread:
                settled[n] = _judged(changes[n], results[n], rows.get(changes[n].task_id))
    return settled


def _judged(change: ConditionalUpdate, result: Result, present: Row | None) -> Result:
    if present is not None and change.is_shown_by(present):
        return Written(present)
    if isinstance(result, Unknown):
        return replace(result, was_read=True, present=present)
    return Lost(present)


def _read(store: Store, changes: Sequence[ConditionalUpdate]) -> Mapping[str, Row]:
    """The rows of these changes, by id; only what decides, unless a change asks for the row."""
    ids = [change.task_id for change in changes]
    if len(ids) == 1:
        row = store.get(ids[0])
        return {} if row is None else {ids[0]: row}
    if any(change.returning for change in changes):
        return store.get_many(ids)
    only = {*_DECISIVE}
    for change in changes:
        only |= {part.attribute for part in (*change.conditions, *change.mark)}
        only |= set() if change.mark else {*change.set, *change.remove}
    return store.get_many(ids, only=only)


def _is_creation(row: Row, present: Row | None) -> bool | None:
    """Whether ``present`` was put by the creation of ``row``, which got no clear answer; None: that is not known."""
    if present is None:
        return None  # it may yet be put; or it was put, and deleted since
    unique = next((name for name in _UNIQUE if row.get(name) is not None), None)
    if unique is not None:
        return ConditionalUpdate(task_id="", mark=(Is(unique, row[unique]),)).is_shown_by(present)
    return True if ConditionalUpdate(task_id="", set=row).is_shown_by(present) else None
