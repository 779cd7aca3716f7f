"""Files that are dropped into a bucket: each is imported by as many invocations as it takes.

Events: a new object, as S3 tells EventBridge; and for the continuation of an import
``{"dynatick": {"import": {"bucket": …, "key": …, "offset": …, …}}}``. Both may come twice: a task is inserted once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import IO, Protocol

from dynatick.bulk.file_reader import read
from dynatick.bulk.formats import FileFormat, format_of
from dynatick.bulk.importing import Import, InsertRows, LineError
from dynatick.bulk.lines import Read
from dynatick.client.insertion import InsertCounts
from dynatick.domain.instants import format_instant
from dynatick.domain.task import check_count
from dynatick.engine.ports import ENVELOPE, Clock, Invoker
from dynatick.errors import DynatickError, InvalidInput, StoreError

IMPORTS, ERRORS, REPORTS = "imports/", "errors/", "reports/"
"""Prefixes of the bucket: what is read, and what is written. None lies within another."""

_RESERVE = timedelta(seconds=20)  # to await what is under way, write what is wrong, and start the next
_MAX_ERRORS = 64 * 1024 * 1024  # bytes in one file of them
_IN_MEMORY = 4 * 1024 * 1024
_EXPECTED = 'expected an event of S3 by EventBridge ("Object Created"), or {"dynatick": {"import": {…}}}'


class FileGone(DynatickError):
    """The object was deleted or replaced since; what replaced it has an event of its own."""


class Files(Protocol):
    """Objects of a bucket. Every method raises StoreError if it cannot be reached."""

    def read(self, bucket: str, key: str, *, etag: str, start: int, size: int) -> bytes:
        """``size`` bytes from ``start``. Raises FileGone if the object is another one than ``etag``."""

    def get(self, bucket: str, key: str) -> bytes | None:
        """A small object; None if there is none."""

    def put(self, bucket: str, key: str, content: IO[bytes], content_type: str) -> None:
        """Writes an object, whether there is one or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What an invocation is to do: import an object, from an offset on."""

    bucket: str
    key: str
    etag: str
    size: int
    sequencer: str  # of S3: tells one upload to this key from another
    offset: int = 0
    line: int = 1
    part: int = 0  # of how many invocations this is
    began: str = ""
    tally: Mapping[str, int] = field(default_factory=dict)  # of the parts before

    @property
    def name(self) -> str:
        return self.key.removeprefix(IMPORTS)

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"import": asdict(self)}}


def parse_event(event: object) -> Order:
    """What an event asks for. Raises InvalidInput."""
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


def _order(values: Mapping[str, object], **place: object) -> Order:
    texts = {name: values.get(name) for name in ("bucket", "key", "etag")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value:
            raise InvalidInput(f"event.{name}", value, _EXPECTED)
    key = str(texts["key"])
    if not key.startswith(IMPORTS):
        raise InvalidInput("event.key", key, f"expected an object below {IMPORTS}")
    tally = place.get("tally") or {}
    if not isinstance(tally, Mapping):
        raise InvalidInput("event.tally", tally, _EXPECTED)
    return Order(
        bucket=str(texts["bucket"]),
        key=key,
        etag=str(texts["etag"]),
        size=check_count(values.get("size"), "event.size"),
        sequencer=str(values.get("sequencer") or ""),
        offset=check_count(place.get("offset") or 0, "event.offset"),
        line=check_count(place.get("line") or 1, "event.line"),
        part=check_count(place.get("part") or 0, "event.part"),
        began=str(place.get("began") or ""),
        tally={name: check_count(number, f"event.tally.{name}") for name, number in tally.items()},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """What an invocation has done."""

    order: Order
    tally: InsertCounts  # of this invocation
    left: str | None = None  # why nothing was done
    continued: bool = False  # another invocation goes on
    problem: str | None = None  # of the table, because of which it goes on in another


@dataclass(slots=True)
class _Errors:
    """Lines that are refused, on their way into a file; none after the first that failed, for they are told again."""

    file: IO[bytes]
    number: int = 0
    failed: bool = False

    def tell(self, error: LineError) -> None:
        self.failed = self.failed or error.field == "table"
        if not self.failed:
            self.file.write(error.to_json().encode() + b"\n")
            self.number += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Importer:
    """Everything that an invocation needs but its event and its end."""

    files: Files
    insert_rows: InsertRows
    invoker: Invoker
    clock: Clock

    def handle(self, event: object, *, hard_end: datetime) -> Dropped:
        """Does what the event asks for. ``hard_end``: when this process will be killed.

        Raises StoreError if it came no further: the event is to come again.
        """
        order = parse_event(event)
        if order.key.endswith("/") and not order.size:
            return Dropped(order=order, tally=InsertCounts(), left="a folder")
        if order.part == 0:
            if self._was_imported(order):
                return Dropped(order=order, tally=InsertCounts(), left="imported before")
            order = replace(order, began=format_instant(self.clock()))
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
            try:
                return self._import(order, hard_end, _Errors(file))
            except FileGone as gone:
                return Dropped(order=order, tally=InsertCounts(), left=str(gone))

    def _import(self, order: Order, hard_end: datetime, errors: _Errors) -> Dropped:
        now = self.clock()
        stop_at = hard_end - min(_RESERVE, (hard_end - now) / 4)

        def is_time() -> bool:
            return errors.failed or self.clock() >= stop_at or errors.file.tell() >= _MAX_ERRORS

        run = Import(
            insert_rows=self.insert_rows, tell=errors.tell, until=is_time, offset=order.offset, line=order.line
        )
        form = self._form(order, run, errors)
        done, problem = InsertCounts(), None  # as it was at ``run.offset``
        offset = order.offset
        if form is not None:
            try:
                for _ in run.run(read(self._source(order), form, offset=order.offset, number=order.line)):
                    if run.offset != offset:
                        offset, done = run.offset, replace(run.tally)
            except FileGone:
                raise
            except StoreError as error:
                problem = str(error)
        if run.complete and not run.tally.unknown:
            self._write_errors(order, errors)
            self._write_report(order, run.tally, errors)
            return Dropped(order=order, tally=run.tally)
        if problem is None and run.tally.unknown:
            problem = "the table did not take a task"
        if offset == order.offset:
            raise StoreError(f"no further than line {order.line} of {order.key}: {problem or 'time is up'}")
        self._write_errors(order, errors)
        self.invoker.invoke(
            replace(order, offset=offset, line=run.line, part=order.part + 1, tally=_sum(order, done)).to_event()
        )
        return Dropped(order=order, tally=done, continued=True, problem=problem)

    def _form(self, order: Order, run: Import, errors: _Errors) -> FileFormat | None:
        try:
            return format_of(order.key)
        except InvalidInput as error:
            errors.tell(LineError(1, error.field, str(error), ""))
            run.tally.refused, run.complete = 1, True
            return None

    def _source(self, order: Order) -> _Source:
        return _Source(self.files, order)

    def _was_imported(self, order: Order) -> bool:
        """Whether this very upload was: S3 may tell of it twice."""
        held = self.files.get(order.bucket, _report_key(order))
        if held is None or not order.sequencer:
            return False
        try:
            report = json.loads(held)
        except ValueError:
            return False
        return isinstance(report, dict) and report.get("sequencer") == order.sequencer

    def _write_errors(self, order: Order, errors: _Errors) -> None:
        if errors.number:
            errors.file.seek(0)
            key = f"{_errors_prefix(order)}from-line-{order.line:010}.ndjson"
            self.files.put(order.bucket, key, errors.file, "application/x-ndjson")

    def _write_report(self, order: Order, tally: InsertCounts, errors: _Errors) -> None:
        total = _sum(order, tally)
        report = {
            "file": order.key,
            "etag": order.etag,
            "sequencer": order.sequencer,
            **total,
            "errors": _errors_prefix(order) if total["refused"] else None,
            "startedAt": order.began,
            "finishedAt": format_instant(self.clock()),
        }
        with tempfile.SpooledTemporaryFile() as file:
            file.write(json.dumps(report, indent=2).encode() + b"\n")
            file.seek(0)
            self.files.put(order.bucket, _report_key(order), file, "application/json")


@dataclass(frozen=True, slots=True)
class _Source:
    """Opens the object at an offset. By many requests, for one that takes as long as the table does would be cut."""

    files: Files
    order: Order

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


def _sum(order: Order, tally: InsertCounts) -> dict[str, int]:
    return {name: number + order.tally.get(name, 0) for name, number in tally.to_row().items() if name != "unknown"}


def _errors_prefix(order: Order) -> str:
    return f"{ERRORS}{order.name}/{order.sequencer or order.etag}/"


def _report_key(order: Order) -> str:
    return f"{REPORTS}{order.name}.json"
