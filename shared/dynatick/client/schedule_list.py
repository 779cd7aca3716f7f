"""Lists schedules by state: a page at a time, or all of them for an export."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynatick.client.schedule_views import SchedulePage, ScheduleView
from dynatick.client.task_update import MAX_KEY_BYTES
from dynatick.domain import attributes as attr
from dynatick.domain.schedule import ScheduleState
from dynatick.domain.task import Row, size_of
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput

_TOGETHER = 25  # rows to a read: they may be large
_MAX_PAGE_BYTES = 4_000_000  # of rows, after which a page ends


def schedule_page(store: Store, state: str | None, limit: int, page_token: str | None) -> SchedulePage:
    """One page of the schedules of a state, or of all states. Raises InvalidInput."""
    states = [check_state(state)] if state is not None else [str(one) for one in ScheduleState]
    first, after = _position(page_token, states)
    found: list[ScheduleView] = []
    size = 0
    for n, one in enumerate(states[first:], first):
        while True:
            page = store.schedules(one, after=after, limit=limit - len(found))
            for part in (page.ids[at : at + _TOGETHER] for at in range(0, len(page.ids), _TOGETHER)):
                rows = store.get_many(part)
                for task_id in part:
                    if size >= _MAX_PAGE_BYTES:
                        return SchedulePage(schedules=tuple(found), next_page_token=f"{one}:{after}")
                    after = task_id
                    if (row := rows.get(task_id)) is not None and row.get(attr.SCHEDULE_STATE) == one:
                        found.append(ScheduleView.from_row(row))
                        size += size_of(row)
            after = page.after
            if len(found) >= limit and (after is not None or n + 1 < len(states)):
                token = f"{one}:{after}" if after is not None else f"{states[n + 1]}:"
                return SchedulePage(schedules=tuple(found), next_page_token=token)
            if after is None:
                break
    return SchedulePage(schedules=tuple(found))


def schedule_rows(store: Store, states: Iterable[str]) -> Iterator[Row]:
    """The whole rows of the schedules of some states, read as they are consumed."""
    for state in states:
        after = None
        while True:
            page = store.schedules(state, after=after, limit=_TOGETHER)
            rows = store.get_many(page.ids) if page.ids else {}
            yield from (rows[one] for one in page.ids if one in rows and rows[one].get(attr.SCHEDULE_STATE) == state)
            if (after := page.after) is None:
                break


def check_state(state: object) -> str:
    """A ``scheduleState``. Raises InvalidInput."""
    for known in ScheduleState:
        if state == str(known):
            return str(known)
    raise InvalidInput(attr.SCHEDULE_STATE, state, f"expected one of {', '.join(ScheduleState)}")


def _position(token: object, states: list[str]) -> tuple[int, str | None]:
    """Where a page begins: the index of its first state, and the id before its first schedule."""
    if token is None:
        return 0, None
    state, colon, after = token.partition(":") if isinstance(token, str) else ("", "", "")
    if not colon or state not in states or len(after.encode("utf-8", "replace")) > MAX_KEY_BYTES:
        raise InvalidInput("pageToken", token, "expected the token of the page before, with the same state")
    return states.index(state), after or None
