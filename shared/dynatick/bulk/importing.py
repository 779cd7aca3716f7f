"""A file's records put into the table, and what became of each line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from dynatick.bulk.ids import PREFIX, with_id
from dynatick.bulk.records import Record
from dynatick.bulk.task_definition import definition
from dynatick.client.insertion import Exists, InsertCounts, Inserted, InsertResult, InsertUnknown, Refused
from dynatick.domain.misspelt import check_names
from dynatick.domain.schedule import RECURRENCE
from dynatick.errors import InvalidInput, ItemTooLarge
from dynatick.json_reader import dumps

_PATIENCE = 200  # failures in a row after which the table is taken to be away

InsertRows = Callable[[Iterable[Mapping[str, object]]], Iterator[InsertResult]]
"""``TaskClient.insert_rows``."""


@dataclass(frozen=True, slots=True)
class LineError:
    """Why a line is no task, or is not in."""

    line: int
    field: str
    message: str
    text: str  # the line

    def to_json(self) -> str:
        """On one line."""
        return dumps(asdict(self))


@dataclass(kw_only=True, slots=True)
class Import:
    """One run over a file's records. Its attributes say how far it is.

    ``offset`` and ``line``: where to go on, so that nothing is left out; every line before has its answer. ``latest``:
    the id of the latest task that is in, of those before it. ``until`` is asked after each record; once it says True no
    more are begun, and what is under way is awaited.
    """

    insert_rows: InsertRows
    tell: Callable[[LineError], None]
    until: Callable[[], bool] = lambda: False
    id_prefix: str = PREFIX
    drop_state: bool = False  # take of each row what defines the task, as of an export with state
    schedules_only: bool = False  # a line without an expression is no task that was meant to run at once
    offset: int = 0
    line: int = 1
    latest: str | None = None
    tally: InsertCounts = field(default_factory=InsertCounts)
    complete: bool = False  # every record has its answer
    gave_up: bool = False  # the table is away
    _under_way: deque[Record] = field(default_factory=deque)
    _exhausted: bool = False
    _held: bool = False  # a line failed: what comes after it may be in, but it is not

    def run(self, records: Iterable[Record]) -> Iterator[None]:
        """Yields after each line that has its answer. Raises what reading the file and asking the table raise."""
        failures = 0
        for result in self.insert_rows(self._rows(records)):
            record = self._under_way.popleft()
            failures = failures + 1 if self._take(record, result) else 0
            yield
            if failures >= _PATIENCE:
                self.gave_up = True
                return
        self.complete = self._exhausted

    def _rows(self, records: Iterable[Record]) -> Iterator[Mapping[str, object]]:
        for record in records:
            row: Mapping[str, object] = {}  # stands for what is no record, and is refused: so answers keep their order
            if record.row is not None:
                try:
                    row = with_id(self._meant(record.row), self.id_prefix)
                except InvalidInput as error:
                    record = replace(record, row=None, error=error)
            self._under_way.append(record)
            yield row
            if self.until():
                return
        self._exhausted = True

    def _meant(self, row: Mapping[str, object]) -> Mapping[str, object]:
        if self.schedules_only and all(row.get(name) is None for name in RECURRENCE):
            check_names(row)
            raise InvalidInput(RECURRENCE[0], None, "expected one on each line of a file of schedules")
        return definition(row) if self.drop_state else row

    def _take(self, record: Record, result: InsertResult) -> bool:
        """Whether the table failed."""
        latest = self.latest
        match result:
            case Inserted(task_id=latest):
                self.tally.inserted += 1
            case Exists(task_id=latest):
                self.tally.exists += 1
            case Refused(error=error):
                self.tally.refused += 1
                error = record.error or error
                self.tell(LineError(record.line, error.field, str(error), record.text))
            case InsertUnknown(error=ItemTooLarge() as too_large):
                self.tally.refused += 1
                self.tell(LineError(record.line, "line", str(too_large), record.text))
            case InsertUnknown(error=failure):
                self.tally.unknown += 1
                self._held = True
                self.tell(LineError(record.line, "table", str(failure), record.text))
                return True
        if not self._held:
            self.offset, self.line, self.latest = record.end, record.next_line, latest
        return False
