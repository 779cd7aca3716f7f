"""Imports the files that users upload to a bucket; a large file takes several invocations.

Events: EventBridge's "Object Created" of S3, and for the continuation of an import
``{"dynatick": {"import": {"bucket": …, "key": …, "offset": …, …}}}``. Both may arrive twice: a task is inserted once.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import IO, Protocol

from dynatick.bulk.file_reader import read
from dynatick.bulk.importing import Import, InsertRows, LineError
from dynatick.bulk.record import FileFormat, Read, Record, format_of
from dynatick.client.batches import LoadedLines
from dynatick.client.insertion import InsertCounts
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.domain.packs import MAX_MEMBERS
from dynatick.domain.task import check_count
from dynatick.engine.ports import ENVELOPE, Clock, Invoker
from dynatick.errors import DynatickError, InvalidInput, ItemTooLarge, StoreError

BATCHES = "imports/batches/"
"""A file below it is a batch: its first line has the settings, each other one the payload of a member."""

IMPORTS, ERRORS, REPORTS = "imports/", "errors/", "reports/"
"""Prefixes of the bucket's keys: the first is read, the others are written. None contains another."""

_RESERVE = timedelta(seconds=20)  # to finish inserts in flight, write the errors, and start the next invocation
_MAX_ERRORS = 64 * 1024 * 1024  # bytes of one file of errors
_IN_MEMORY = 4 * 1024 * 1024
_OF_PAYLOAD = re.compile(r"payloads\[(\d+)\](.*)", re.DOTALL)
_EXPECTED = 'expected an event of S3 by EventBridge ("Object Created"), or {"dynatick": {"import": {…}}}'


class FileGone(DynatickError):
    """The object was deleted or replaced since the event. A replacement has an event of its own."""


class LoadBatch(Protocol):
    """``client.batches.load_lines`` of a client."""

    def __call__(
        self,
        settings: Mapping[str, object],
        payloads: Iterator[Mapping[str, object]],
        *,
        since: int,
        should_stop: Callable[[], bool],
    ) -> LoadedLines: ...


class Files(Protocol):
    """Objects of buckets. Every method raises StoreError if the bucket can't be reached."""

    def read(self, bucket: str, key: str, *, etag: str, start: int, size: int) -> bytes:
        """Returns up to ``size`` bytes from ``start``. Raises FileGone if the object's ETag is not ``etag``."""

    def get(self, bucket: str, key: str) -> bytes | None:
        """Returns the content of a small object; None if it does not exist."""

    def put(self, bucket: str, key: str, content: IO[bytes], content_type: str) -> None:
        """Writes an object; replaces an existing one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOrder:
    """The order to import an object from an offset on, or to continue doing so."""

    bucket: str
    key: str
    etag: str
    size: int
    sequencer: str  # from S3: identifies the upload
    offset: int = 0
    line: int = 1
    part: int = 0  # how many invocations came before
    began: str = ""
    tally: Mapping[str, int] = field(default_factory=dict)  # of the earlier parts

    @property
    def name(self) -> str:
        return self.key.removeprefix(IMPORTS)

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"import": asdict(self)}}


def parse_event(event: object) -> ImportOrder:
    """The order in an event. Raises InvalidInput."""
    if not isinstance(event, Mapping):
        raise InvalidInput("event", event, _EXPECTED)
    if (inner := event.get(ENVELOPE)) is not None:
        values = inner.get("import") if isinstance(inner, Mapping) else None
        if not isinstance(values, Mapping):
            raise InvalidInput("event.dynatick", inner, _EXPECTED)
        return _order(values, **{name: values.get(name) for name in ("offset", "line", "part", "began", "tally")})
    detail = event.get("detail")
    bucket, file = (detail.get("bucket"), detail.get("object")) if isinstance(detail, Mapping) else (None, None)
    if not isinstance(bucket, Mapping) or not isinstance(file, Mapping):
        raise InvalidInput("event.detail", detail, _EXPECTED)
    return _order({**file, "bucket": bucket.get("name")})


def _order(values: Mapping[str, object], **progress: object) -> ImportOrder:
    texts = {name: values.get(name) for name in ("bucket", "key", "etag")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value:
            raise InvalidInput(f"event.{name}", value, _EXPECTED)
    key = str(texts["key"])
    if not key.startswith(IMPORTS):
        raise InvalidInput("event.key", key, f"expected an object below {IMPORTS}")
    tally = progress.get("tally") or {}
    if not isinstance(tally, Mapping):
        raise InvalidInput("event.tally", tally, _EXPECTED)
    return ImportOrder(
        bucket=str(texts["bucket"]),
        key=key,
        etag=str(texts["etag"]),
        size=check_count(values.get("size"), "event.size"),
        sequencer=str(values.get("sequencer") or ""),
        offset=check_count(progress.get("offset") or 0, "event.offset"),
        line=check_count(progress.get("line") or 1, "event.line"),
        part=check_count(progress.get("part") or 0, "event.part"),
        began=str(progress.get("began") or ""),
        tally={name: check_count(number, f"event.tally.{name}") for name, number in tally.items()},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportResult:
    """The result of an invocation."""

    order: ImportOrder
    tally: InsertCounts = field(default_factory=InsertCounts)  # of this invocation
    skipped: str | None = None  # why nothing was done
    continued: bool = False  # another invocation goes on
    problem: str | None = None  # of the table, because of which it goes on in another


@dataclass(slots=True)
class _Errors:
    """Collects refused lines in a file, up to the first failed insert: the next invocation repeats those after it."""

    file: IO[bytes]
    count: int = 0
    failed: bool = False

    def write(self, error: LineError) -> None:
        self.failed = self.failed or error.field == "table"
        if not self.failed:
            self.file.write(error.to_json().encode() + b"\n")
            self.count += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Importer:
    """Handles the events of the importer function."""

    files: Files
    insert_rows: InsertRows
    load_batch: LoadBatch
    invoker: Invoker
    clock: Clock

    def handle(self, event: object, *, hard_end: datetime) -> ImportResult:
        """Imports as much as time allows, and starts the next invocation if lines are left.

        ``hard_end``: when this process will be killed. Raises StoreError if nothing was imported, so that the event is
        delivered again, and InvalidInput for an event of another kind.
        """
        order = parse_event(event)
        if order.key.endswith("/") and not order.size:
            return ImportResult(order=order, skipped="a folder")
        if order.part == 0:
            if self._was_imported(order):
                return ImportResult(order=order, skipped="imported before")
            order = replace(order, began=format_instant(self.clock()))
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
            try:
                return self._import(order, hard_end, _Errors(file))
            except FileGone as gone:
                return ImportResult(order=order, skipped=str(gone))

    def _import(self, order: ImportOrder, hard_end: datetime, errors: _Errors) -> ImportResult:
        now = self.clock()
        stop_at = hard_end - min(_RESERVE, (hard_end - now) / 4)

        if order.key.startswith(BATCHES):
            return self._import_batch(order, stop_at, errors)

        def is_time_up() -> bool:
            return errors.failed or self.clock() >= stop_at or errors.file.tell() >= _MAX_ERRORS

        run = Import(
            insert_rows=self.insert_rows,
            report=errors.write,
            should_stop=is_time_up,
            offset=order.offset,
            line=order.line,
        )
        form = self._form(order, run, errors)
        done, problem = InsertCounts(), None  # as it was at ``run.offset``
        offset = order.offset
        if form is not None:
            try:
                for _ in run.run(read(_Source(self.files, order), form, offset=order.offset, number=order.line)):
                    if run.offset != offset:
                        offset, done = run.offset, replace(run.tally)
            except FileGone:
                raise
            except StoreError as error:
                problem = str(error)
        if run.complete and not run.tally.unknown:
            return self._ended(order, run.tally, errors, {"nothingReadAfterLine": run.unreadable})
        if problem is None and run.tally.unknown:
            problem = "the table did not take a task"
        if offset == order.offset:
            raise StoreError(f"no further than line {order.line} of {order.key}: {problem or 'time is up'}")
        self._write_errors(order, errors)
        return self._continued(order, done, offset=offset, line=run.line, problem=problem)

    def _import_batch(self, order: ImportOrder, stop_at: datetime, errors: _Errors) -> ImportResult:
        """Loads the lines of a batch, from a number on that is a multiple of 500. The first line that is refused ends
        it: a batch has a member for each line."""
        lines = _Lines(_Source(self.files, order), order)
        try:
            loaded = self.load_batch(
                lines.settings(), lines.payloads(), since=lines.since, should_stop=lambda: self.clock() >= stop_at
            )
        except DynatickError as error:
            if isinstance(error, FileGone) or (isinstance(error, StoreError) and not isinstance(error, ItemTooLarge)):
                raise
            errors.write(lines.error(error))
            return self._ended(order, InsertCounts(refused=1), errors)
        exists = loaded.next_number - lines.since - loaded.members_written
        tally = InsertCounts(inserted=loaded.members_written, exists=exists)
        if not loaded.is_stopped:
            return self._ended(order, tally, errors, {attr.BATCH_ID: loaded.batch_id})
        if lines.last is None:
            raise StoreError(f"no further than line {order.line} of {order.key}: time is up")
        return self._continued(order, tally, offset=lines.last.end, line=lines.last.next_line)

    def _continued(
        self, order: ImportOrder, tally: InsertCounts, *, offset: int, line: int, problem: str | None = None
    ) -> ImportResult:
        """Starts the next invocation, for the lines from here on."""
        following = replace(order, offset=offset, line=line, part=order.part + 1, tally=_sum(order, tally))
        self.invoker.invoke(following.to_event())
        return ImportResult(order=order, tally=tally, continued=True, problem=problem)

    def _form(self, order: ImportOrder, run: Import, errors: _Errors) -> FileFormat | None:
        try:
            return format_of(order.key)
        except InvalidInput as error:
            errors.write(LineError(1, error.field, str(error), ""))
            run.tally.refused, run.complete = 1, True
            return None

    def _was_imported(self, order: ImportOrder) -> bool:
        """Whether this upload has been imported: S3 may send its event twice."""
        content = self.files.get(order.bucket, _report_key(order))
        if content is None or not order.sequencer:
            return False
        try:
            report = json.loads(content)
        except ValueError:
            return False
        return isinstance(report, dict) and report.get("sequencer") == order.sequencer

    def _write_errors(self, order: ImportOrder, errors: _Errors) -> None:
        if errors.count:
            errors.file.seek(0)
            key = f"{_errors_prefix(order)}from-line-{order.line:010}.ndjson"
            self.files.put(order.bucket, key, errors.file, "application/x-ndjson")

    def _ended(
        self, order: ImportOrder, tally: InsertCounts, errors: _Errors, more: Mapping[str, object] | None = None
    ) -> ImportResult:
        """Writes the last errors, and the report."""
        self._write_errors(order, errors)
        total = _sum(order, tally)
        report = {
            "file": order.key,
            "etag": order.etag,
            "sequencer": order.sequencer,
            **(more or {}),
            **total,
            "errors": _errors_prefix(order) if total["refused"] else None,
            attr.STARTED_AT: order.began,
            attr.FINISHED_AT: format_instant(self.clock()),
        }
        with tempfile.SpooledTemporaryFile() as file:
            file.write(json.dumps(report, indent=2).encode() + b"\n")
            file.seek(0)
            self.files.put(order.bucket, _report_key(order), file, "application/json")
        return ImportResult(order=order, tally=tally)


@dataclass(frozen=True, slots=True)
class _Source:
    """Opens the object at an offset. Reads by many requests: S3 would end one that is read as slowly as the inserts."""

    files: Files
    order: ImportOrder

    def __call__(self, offset: int) -> Read:
        at, order = offset, self.order

        def read_on(size: int) -> bytes:
            nonlocal at
            size = min(size, order.size - at)
            if size <= 0:
                return b""
            part = self.files.read(order.bucket, order.key, etag=order.etag, start=at, size=size)
            at += len(part)
            return part

        return read_on


@dataclass(slots=True)
class _Lines:
    """The lines of a batch, as they are read. ``since``: the number of the payload that the order begins with."""

    source: _Source
    order: ImportOrder
    since: int = 0
    first: int = 0  # the number of the first of ``kept``
    kept: list[Record] = field(default_factory=list)  # those that are checked together
    begins: Record | None = None  # the settings

    def __post_init__(self) -> None:
        self.since = self.first = sum(self.order.tally.get(name, 0) for name in ("inserted", "exists"))

    @property
    def last(self) -> Record | None:
        return self.kept[-1] if self.kept else None

    def settings(self) -> Mapping[str, object]:
        """Those in the first line. Raises InvalidInput."""
        if format_of(self.order.key) is not FileFormat.NDJSON:
            raise InvalidInput("file", self.order.key, "expected a name that ends in one of .ndjson, .jsonl")
        self.begins = next(read(self.source, FileFormat.NDJSON), None)
        if self.begins is None:
            raise InvalidInput("file", self.order.key, "expected the settings of the batch in its first line")
        if self.begins.row is None:
            raise self.begins.error or InvalidInput("line", self.begins.text, "expected the settings of the batch")
        return self.begins.row

    def payloads(self) -> Iterator[Mapping[str, object]]:
        """Raises InvalidInput for a line that has none."""
        offset, number = self.order.offset, self.order.line
        if self.begins is not None and not offset:
            offset, number = self.begins.end, self.begins.next_line
        for record in read(self.source, FileFormat.NDJSON, offset=offset, number=number, of_payloads=True):
            if len(self.kept) == MAX_MEMBERS:
                self.kept.clear()
                self.first += MAX_MEMBERS
            self.kept.append(record)
            if record.row is None:
                raise record.error or InvalidInput("line", record.text, "expected a payload")
            yield record.row

    def error(self, error: DynatickError) -> LineError:
        """An error, with its line: that of a payload, if it names one, else the first."""
        name = str(getattr(error, "field", attr.BATCH_ID))
        record = self.begins
        if (found := _OF_PAYLOAD.fullmatch(name)) is not None:
            name = f"{attr.PAYLOAD}{found[2]}"
            n = int(found[1]) - self.first
            record = self.kept[n] if 0 <= n < len(self.kept) else None
        elif self.last is not None and self.last.row is None:
            record = self.last
        return LineError(
            *((1, name, str(error), "") if record is None else (record.line, name, str(error), record.text))
        )


def _sum(order: ImportOrder, tally: InsertCounts) -> dict[str, int]:
    return {name: number + order.tally.get(name, 0) for name, number in tally.to_row().items() if name != "unknown"}


def _errors_prefix(order: ImportOrder) -> str:
    return f"{ERRORS}{order.name}/{order.sequencer or order.etag}/"


def _report_key(order: ImportOrder) -> str:
    return f"{REPORTS}{order.name}.json"
