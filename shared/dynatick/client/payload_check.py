"""Checks the payloads of waiting tasks and schedules by the types of their handlers: which would they refuse?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from dynatick.actions.payload_schema import check_schema, takes_with_more
from dynatick.client.batch_members import waiting_members
from dynatick.domain import attributes as attr
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import Row
from dynatick.domain.view import View
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput

MAX_READS = 100
"""Requests of a check of the table: 1 MB each, 256 read units."""

READ = (attr.STATUS, attr.OUTCOME, attr.ACTION, attr.PAYLOAD, attr.PACK)
"""The attributes of a row that are checked."""

_MAX_GROUPS = 20
_MAX_GROUPS_COUNTED = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class UnfitPayloads(View):
    """Waiting tasks of one action whose payloads do not fit for the same reason."""

    action: str
    error: Annotated[str, "The first field that does not fit, and why."]
    fails: Annotated[
        bool, "They fail. If not, they have fields that the handler's type does not name, and run without these."
    ]
    count: int
    task_id: Annotated[str, "One of them."]


@dataclass(frozen=True, kw_only=True, slots=True)
class PayloadCheck(View):
    """Whether the payloads of what waits, tasks and schedules, fit the types of their handlers. Only validators of the
    types themselves are left to the handlers."""

    checked: Annotated[int, "Those whose handler's type is known."]
    reads: Annotated[int, "Requests, of 1 MB at most each."]
    complete: Annotated[bool, "All that wait were looked at. If not, it is a sample."]
    failing: Annotated[int, "How many will fail, because their handlers refuse their payloads."] = 0
    groups: Annotated[tuple[UnfitPayloads, ...], "The most frequent first."] = ()


@dataclass(slots=True)
class PayloadChecker:
    """Checks rows. ``schemas``: the payloads' JSON Schemas as text, by action; other actions are passed over. The
    payloads of packs are read from ``store``: four read units for 500 members."""

    schemas: Mapping[str, str]
    store: Store
    default_action: str | None = None  # of rows that name none
    checked: int = 0
    _counts: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    _examples: dict[tuple[str, str, bool], str] = field(default_factory=dict)
    _failing: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Checks the rows that wait, and passes over others."""
        for row in rows:
            view = RowView(row)
            if is_terminal(row) or not (view.is_unbegun or view.is_recurring):
                continue
            if not view.is_pack:
                self._check(view.task_id, row.get(attr.ACTION) or self.default_action, row.get(attr.PAYLOAD))
            elif row.get(attr.ACTION) in self.schemas:
                for member in waiting_members(self.store, row):
                    self._check(str(member[attr.TASK_ID]), member.get(attr.ACTION), member.get(attr.PAYLOAD))

    def _check(self, task_id: str, action: object, payload: object) -> None:
        schema = self.schemas.get(action) if isinstance(action, str) else None
        if schema is None:
            return
        self.checked += 1
        if (problem := problem_of(schema, payload)) is None:
            return
        error, fails = problem
        self._failing += fails
        key = (str(action), error, fails)
        if key in self._counts or len(self._counts) < _MAX_GROUPS_COUNTED:
            self._counts[key] += 1
            self._examples.setdefault(key, task_id)

    def found(self, *, reads: int, complete: bool) -> PayloadCheck:
        """The result. ``reads``: the requests that the rows took."""
        groups = tuple(
            UnfitPayloads(action=action, error=error, fails=fails, count=count, task_id=self._examples[key])
            for key, count in self._counts.most_common(_MAX_GROUPS)
            for action, error, fails in (key,)
        )
        return PayloadCheck(checked=self.checked, reads=reads, complete=complete, failing=self._failing, groups=groups)


def check_table(store: Store, checker: PayloadChecker, *, max_reads: int | None = MAX_READS) -> PayloadCheck:
    """Reads the table in the order of the ids' hashes, so that the first reads are a sample. ``max_reads`` None: all of
    it. Raises StoreError."""
    after: str | None = None
    reads = 0
    while max_reads is None or reads < max_reads:
        page = store.scan(after=after)
        checker.add(page.rows)
        reads += 1
        after = page.after
        if after is None:
            return checker.found(reads=reads, complete=True)
    return checker.found(reads=reads, complete=False)


def problem_of(schema: str, payload: object) -> tuple[str, bool] | None:
    """Why a payload does not fit, and whether its task fails for that; None: it fits."""
    try:
        check_schema(schema, payload)
    except InvalidInput as error:
        return f"{error.field}: {error.expected}", not takes_with_more(schema, payload)
    return None
