"""Inserts the records of a file, and counts and reports the result of each line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from dynatick.bulk.record import Record
from dynatick.bulk.task_definition import PREFIX, definition, with_id
from dynatick.client.insertion import Exists, InsertCounts, Inserted, InsertResult, InsertUnknown, Refused
from dynatick.domain import attributes as attr
from dynatick.domain.normalise import check_names
from dynatick.domain.row import RowView
from dynatick.errors import InvalidInput, ItemTooLarge
from dynatick.json_reader import dumps

_MAX_FAILURES_IN_A_ROW = 200  # then the import gives up, because the table can't be reached

InsertRows = Callable[[Iterable[Mapping[str, object]]], Iterator[InsertResult]]
"""``TaskClient.insert_lazily``."""


@dataclass(frozen=True, slots=True)
class LineError:
    """Why a line was refused or not inserted."""

    line: int
    field: str
    message: str
    text: str  # the line

    def to_json(self) -> str:
        """The error as one line of JSON."""
        return dumps(asdict(self))


@dataclass(kw_only=True, slots=True)
class Import:
    """The import of a file's records. The attributes have its progress.

    ``offset`` and ``line``: where the next import continues; every line before has a result. ``latest``: the id of the
    last inserted task before that line. ``should_stop`` is called after each record; after it returns True, no further
    record is read, and the inserts in flight are finished.
    """

    insert_rows: InsertRows
    report: Callable[[LineError], None]
    should_stop: Callable[[], bool] = lambda: False
    id_prefix: str = PREFIX
    drop_state: bool = False  # insert only the attributes that define a task, as from an export with state
    schedules_only: bool = False  # refuse lines without an expression, which would be tasks
    offset: int = 0
    line: int = 1
    latest: str | None = None
    tally: InsertCounts = field(default_factory=InsertCounts)
    complete: bool = False  # every record has its answer
    unreadable: int | None = None  # the line after which nothing could be read
    gave_up: bool = False  # the table is away
    _in_flight: deque[Record] = field(default_factory=deque)
    _exhausted: bool = False
    _has_failed: bool = False  # a line failed: ``offset`` stays before it

    def run(self, records: Iterable[Record]) -> Iterator[None]:
        """Inserts the records. Yields after each result. Raises what ``records`` and ``insert_rows`` raise."""
        failures = 0
        for result in self.insert_rows(self._rows(records)):
            record = self._in_flight.popleft()
            failures = failures + 1 if self._record(record, result) else 0
            yield
            if failures >= _MAX_FAILURES_IN_A_ROW:
                self.gave_up = True
                return
        self.complete = self._exhausted

    def _rows(self, records: Iterable[Record]) -> Iterator[Mapping[str, object]]:
        for record in records:
            # An invalid record becomes an empty row, which is refused: so the results keep the order of the records.
            row: Mapping[str, object] = {}
            if record.row is not None:
                try:
                    row = with_id(self._definition(record.row), self.id_prefix)
                except InvalidInput as error:
                    record = replace(record, row=None, error=error)
            if record.is_last:
                self.unreadable = record.line
            self._in_flight.append(replace(record, row=None))  # the row is not kept
            yield row
            if self.should_stop():
                return
        self._exhausted = True

    def _definition(self, row: Mapping[str, object]) -> Mapping[str, object]:
        if self.schedules_only and not RowView(row).has_expression:
            check_names(row)
            raise InvalidInput(attr.SCHEDULE_EXPRESSION, None, "expected one on each line of a file of schedules")
        return definition(row) if self.drop_state else row

    def _record(self, record: Record, result: InsertResult) -> bool:
        """Counts and reports a result. Returns whether the table failed."""
        latest = self.latest
        match result:
            case Inserted(task_id=latest):
                self.tally.inserted += 1
            case Exists(task_id=latest):
                self.tally.exists += 1
            case Refused(error=error):
                self.tally.refused += 1
                error = record.error or error
                self.report(LineError(record.line, error.field, str(error), record.text))
            case InsertUnknown(error=ItemTooLarge() as too_large):
                self.tally.refused += 1
                self.report(LineError(record.line, "line", str(too_large), record.text))
            case InsertUnknown(error=failure):
                self.tally.unknown += 1
                self._has_failed = True
                self.report(LineError(record.line, "table", str(failure), record.text))
                return True
        if not self._has_failed:
            self.offset, self.line, self.latest = record.end, record.next_line, latest
        return False
