"""The importer function: a file is imported once, by one or several invocations, also after failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import IO, Any

import pytest
from tests.builders import InProcess

from dynatick import TaskClient
from dynatick.bulk import importer
from dynatick.bulk.importer import FileGone, Importer, ImportOrder, ImportResult, parse_event
from dynatick.client.insertion import InsertResult, InsertUnknown
from dynatick.errors import InvalidInput, StoreError

TASK = '{"taskId": "t%d", "dueAt": "2026-12-31T12:30:00Z"}\n'


@dataclass
class Bucket:
    """Objects in memory; each upload has another sequencer."""

    objects: dict[str, bytes] = field(default_factory=dict)
    reads: list[int] = field(default_factory=list)
    fails: Callable[[], None] = lambda: None

    def event(self, key: str, content: str | bytes, sequencer: str = "001") -> dict[str, Any]:
        data = content if isinstance(content, bytes) else content.encode()
        self.objects[key] = data
        file = {"key": key, "size": len(data), "etag": etag_of(data), "sequencer": sequencer}
        detail = {"bucket": {"name": "b"}, "object": file}
        return {"source": "aws.s3", "detail-type": "Object Created", "detail": detail}

    def read(self, bucket: str, key: str, *, etag: str, start: int, size: int) -> bytes:
        self.fails()
        assert bucket == "b" and size > 0
        if key not in self.objects or etag_of(self.objects[key]) != etag:
            raise FileGone(f"{key} was deleted or replaced meanwhile")
        self.reads.append(start)
        return self.objects[key][start : start + size]

    def get(self, bucket: str, key: str) -> bytes | None:
        return self.objects.get(key)

    def put(self, bucket: str, key: str, content: IO[bytes], content_type: str) -> None:
        assert not key.startswith("imports/"), "it would start itself"
        self.objects[key] = content.read()

    def report(self, name: str) -> dict[str, Any]:
        return json.loads(self.objects[f"reports/{name}.json"])  # type: ignore[no-any-return]

    def errors(self) -> list[Mapping[str, Any]]:
        files = [self.objects[key] for key in sorted(self.objects) if key.startswith("errors/")]
        return [json.loads(line) for file in files for line in file.splitlines()]


def etag_of(data: bytes) -> str:
    return f"etag-{hash(data)}"


@dataclass
class Lambda:
    """The function; each invocation has time for ``records``. ``run`` also runs the invocations that it starts."""

    world: InProcess
    bucket: Bucket
    records: int = 10**9  # that an invocation has time for
    started: list[Mapping[str, object]] = field(default_factory=list)
    insert_lazily: Callable[[Iterable[Mapping[str, object]]], Iterator[InsertResult]] | None = None

    def invoke(self, event: Mapping[str, object]) -> None:
        self.started.append(json.loads(json.dumps(event)))

    def handle(self, event: object) -> ImportResult:
        client = TaskClient(self.world.store, clock=self.world.clock)
        end = self.world.clock() + timedelta(seconds=60)
        asked = iter(range(10**9))

        def clock() -> datetime:  # asked after each record, it runs out after so many
            return end if next(asked) > self.records else self.world.clock()

        importer = Importer(
            files=self.bucket, insert_rows=self.insert_lazily or client.insert_lazily, invoker=self, clock=clock
        )
        return importer.handle(event, hard_end=end)

    def run(self, event: object) -> list[ImportResult]:
        done = [self.handle(event)]
        while self.started:
            done.append(self.handle(self.started.pop(0)))
        return done


@pytest.fixture
def function() -> Lambda:
    world = InProcess()
    world.tick()
    return Lambda(world, Bucket())


MIXED = "".join(TASK % n if n % 7 else f"bad {n}\n" for n in range(2000))
BAD = [n + 1 for n in range(2000) if n % 7 == 0]


def test_a_file_in_one_invocation(function: Lambda) -> None:
    (done,) = function.run(function.bucket.event("imports/x/tasks.ndjson", MIXED))
    assert (done.skipped, done.continued) == (None, False)
    report = function.bucket.report("x/tasks.ndjson")
    assert {name: report[name] for name in ("file", "inserted", "exists", "refused", "errors")} == {
        "file": "imports/x/tasks.ndjson", "inserted": 2000 - len(BAD), "exists": 0, "refused": len(BAD),
        "errors": "errors/x/tasks.ndjson/001/",
    }  # fmt: skip
    assert [error["line"] for error in function.bucket.errors()] == BAD
    assert function.world.row("t1")["taskDateTime"] == "2026-12-31#12:30"


def test_a_large_file_takes_several_invocations(function: Lambda) -> None:
    function.records = 150
    done = function.run(function.bucket.event("imports/tasks.ndjson", MIXED))
    assert len(done) > 5 and all(one.continued for one in done[:-1]) and not done[-1].continued
    assert [one.order.part for one in done] == list(range(len(done)))
    report = function.bucket.report("tasks.ndjson")
    assert (report["inserted"], report["refused"], report["exists"]) == (2000 - len(BAD), len(BAD), 0)
    assert sum(one.tally.inserted for one in done) == report["inserted"]
    assert [error["line"] for error in function.bucket.errors()] == BAD, "each once, in order"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_import_of_each_format_continues(function: Lambda, form: str) -> None:
    function.records = 40
    lines = {
        "csv": "taskId,payload.text\n" + "".join(f't{n},"a\n{n}"\n' for n in range(300)),
        "json": "".join(TASK % n for n in range(300)),
    }
    done = function.run(function.bucket.event(f"imports/tasks.{form}", lines[form]))
    assert len(done) > 3
    assert function.bucket.report(f"tasks.{form}")["inserted"] == 300
    if form == "csv":
        assert function.world.row("t299")["payload"] == {"text": "a\n299"}


def test_a_repeated_event_imports_nothing_and_a_file_uploaded_again_inserts_nothing(function: Lambda) -> None:
    event = function.bucket.event("imports/tasks.ndjson", MIXED)
    function.run(event)
    before = dict(function.bucket.objects)
    (again,) = function.run(event)
    assert again.skipped == "imported before" and function.bucket.objects == before
    function.run(function.bucket.event("imports/tasks.ndjson", MIXED, sequencer="002"))
    report = function.bucket.report("tasks.ndjson")
    assert (report["inserted"], report["exists"], report["sequencer"]) == (0, 2000 - len(BAD), "002")


def test_two_invocations_at_once_insert_each_task_once(function: Lambda) -> None:
    function.records = 150
    event = function.bucket.event("imports/tasks.ndjson", MIXED)
    done = [function.handle(event), *function.run(event)]
    assert sum(one.tally.inserted for one in done) == 2000 - len(BAD)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_deleted_file_is_skipped(function: Lambda, how: str) -> None:
    event = function.bucket.event("imports/tasks.ndjson", MIXED)
    if how == "deleted":
        del function.bucket.objects["imports/tasks.ndjson"]
    else:
        function.bucket.event("imports/tasks.ndjson", TASK % 1)
    (done,) = function.run(event)
    assert done.skipped == "imports/tasks.ndjson was deleted or replaced meanwhile"
    assert not [key for key in function.bucket.objects if not key.startswith("imports/")]


def test_an_unreachable_table_raises_so_that_the_event_is_retried(function: Lambda) -> None:
    def insert_lazily(rows: Iterable[Mapping[str, object]]) -> Iterator[InsertResult]:
        for n, row in enumerate(rows):
            yield InsertUnknown(n, str(row.get("taskId")), StoreError("throttled"))

    function.insert_lazily = insert_lazily
    event = function.bucket.event("imports/tasks.ndjson", "".join(TASK % n for n in range(50)))
    with pytest.raises(StoreError, match=r"no further than line 1 of imports/tasks[.]ndjson: the table did not take"):
        function.handle(event)
    assert not function.started and list(function.bucket.objects) == ["imports/tasks.ndjson"]


@pytest.mark.parametrize("raises", [False, True])
def test_a_table_that_fails_half_way_continues_from_there(function: Lambda, raises: bool) -> None:
    """Inserted lines are not read again, and each error is reported once."""
    client = TaskClient(function.world.store, clock=function.world.clock)

    def insert_lazily(rows: Iterable[Mapping[str, object]]) -> Iterator[InsertResult]:
        for n, result in enumerate(client.insert_lazily(rows)):
            if n >= 100 and raises:
                raise StoreError("no answer")
            yield InsertUnknown(n, "t", StoreError("throttled")) if 100 <= n < 105 else result

    function.insert_lazily = insert_lazily
    first = function.handle(function.bucket.event("imports/tasks.ndjson", MIXED))
    assert first.continued and first.problem in ("the table did not take a task", "no answer")
    function.insert_lazily = None
    (event,) = function.started
    assert event["dynatick"]["import"]["line"] == 101  # type: ignore[index]
    function.started.clear()
    function.run(event)
    report = function.bucket.report("tasks.ndjson")
    assert report["inserted"] + report["exists"] == 2000 - len(BAD) and report["refused"] == len(BAD)
    assert [error["line"] for error in function.bucket.errors()] == BAD


def test_an_unreadable_bucket_raises_so_that_the_event_is_retried(function: Lambda) -> None:
    def fails() -> None:
        raise StoreError("cannot read imports/tasks.ndjson: slow down")

    function.bucket.fails = fails
    with pytest.raises(StoreError, match=r"no further than line 1 .* slow down"):
        function.handle(function.bucket.event("imports/tasks.ndjson", MIXED))


def test_many_errors_are_written_to_several_files(function: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "_MAX_ERRORS", 5000)
    done = function.run(function.bucket.event("imports/tasks.ndjson", "bad\n" * 5000))
    assert len(done) > 3
    files = [key for key in function.bucket.objects if key.startswith("errors/")]
    assert len(files) == len(done)
    assert [error["line"] for error in function.bucket.errors()] == list(range(1, 5001))


def test_a_file_of_an_unknown_format_is_refused(function: Lambda) -> None:
    function.run(function.bucket.event("imports/tasks.ndjson.gz", TASK % 1))
    (error,) = function.bucket.errors()
    assert error["field"] == "file" and "ends in one of" in error["message"]
    assert function.bucket.report("tasks.ndjson.gz")["refused"] == 1


def test_an_empty_file_and_a_folder(function: Lambda) -> None:
    (done,) = function.run(function.bucket.event("imports/empty.ndjson", ""))
    assert done.skipped is None and function.bucket.report("empty.ndjson")["inserted"] == 0
    assert not function.bucket.reads
    (done,) = function.run(function.bucket.event("imports/folder/", ""))
    assert done.skipped == "a folder"


def test_a_file_is_read_in_pieces(function: Lambda) -> None:
    text = "".join('{"taskId": "t%d", "payload": {"x": "%s"}}\n' % (n, "x" * 10_000) for n in range(300))  # noqa: UP031
    function.run(function.bucket.event("imports/large.ndjson", text))
    assert function.bucket.report("large.ndjson")["inserted"] == 300
    assert function.bucket.reads == [0, 1024 * 1024, 2 * 1024 * 1024]


@pytest.mark.parametrize(
    "event",
    [
        None, {}, {"detail": None}, {"detail": {"bucket": {}, "object": {}}},
        {"detail": {"bucket": {"name": "b"}, "object": {"key": "errors/x.ndjson", "size": 1, "etag": "e"}}},
        {"detail": {"bucket": {"name": "b"}, "object": {"key": "imports/x.ndjson", "size": -1, "etag": "e"}}},
        {"dynatick": {"import": []}}, {"dynatick": {"reconcile": True}},
        {"dynatick": {"import": {"bucket": "b", "key": "imports/x", "etag": "e", "size": 1, "offset": "x"}}},
    ],
)  # fmt: skip
def test_an_unknown_event_is_refused(event: object) -> None:
    with pytest.raises(InvalidInput, match="event"):
        parse_event(event)


def test_an_order_survives_its_event() -> None:
    order = ImportOrder(
        bucket="b", key="imports/ä b.csv", etag="e", size=9, sequencer="1", offset=3, line=2, part=4, began="x",
        tally={"inserted": 3, "exists": 1, "refused": 0},
    )  # fmt: skip
    assert parse_event(json.loads(json.dumps(order.to_event()))) == order
