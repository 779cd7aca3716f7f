"""The import of lines, in order, with derived ids; and the importer function: a file is imported once, by one or
several invocations, also after failures."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import IO, Any

import pytest
from tests.builders import NOON, InProcess
from tests.silent import Silent, beside, silence
from tests.unit.bulk.support import records
from tests.unit.engine.support import Dies

from dynatick import TaskClient
from dynatick.bulk import importer, record
from dynatick.bulk.importer import FileGone, Importer, ImportResult, parse_event
from dynatick.bulk.importing import Import, LineError
from dynatick.bulk.task_definition import with_id
from dynatick.client.batches import load_lines
from dynatick.client.insertion import InsertCounts, InsertResult, InsertUnknown
from dynatick.engine.ports import StoreFailure
from dynatick.errors import InvalidInput, StoreError

TASK = '{"taskId": "t%d", "dueAt": "2026-12-31T12:30:00Z"}\n'


@dataclass
class Bucket:
    """Objects in memory; each upload has another sequencer."""

    objects: dict[str, bytes] = field(default_factory=dict)
    reads: list[int] = field(default_factory=list)
    fails: Callable[[], None] = lambda: None

    def event(self, key: str, content: str, sequencer: str = "001") -> dict[str, Any]:
        self.objects[key] = data = content.encode()
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
    return f"etag-{hashlib.sha256(data).hexdigest()}"


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

        def clock() -> datetime:  # asked after each record, it runs out after a number of them
            return end if next(asked) > self.records else self.world.clock()

        importer = Importer(
            files=self.bucket,
            insert_rows=self.insert_lazily or client.insert_lazily,
            load_batch=partial(load_lines, client.batches),
            invoker=self,
            clock=clock,
        )
        return importer.handle(event, hard_end=end)

    def run(self, event: object) -> list[ImportResult]:
        done = [self.handle(event)]
        while self.started:
            done.append(self.handle(self.started.pop(0)))
        return done


@pytest.fixture
def world() -> InProcess:
    world = InProcess()
    world.tick()
    return world


@pytest.fixture
def function(world: InProcess) -> Lambda:
    return Lambda(world, Bucket())


# -- lines -------------------------------------------------------------------------------------------------------------


def imported(world: InProcess, text: str, **options: object) -> tuple[Import, list[LineError]]:
    errors: list[LineError] = []
    client = TaskClient(world.store, clock=world.clock)
    done = Import(insert_rows=client.insert_lazily, report=errors.append, **options)  # type: ignore[arg-type]
    list(done.run(iter(records(text))))
    return done, errors


def test_an_error_has_line_field_message_and_text(world: InProcess) -> None:
    _, (error,) = imported(world, '\n{"taskId": "größe", "dueAt": "tomorrow"}\n')
    assert json.loads(error.to_json()) == {
        "line": 2, "field": "dueAt", "message": str(error.message), "text": '{"taskId": "größe", "dueAt": "tomorrow"}',
    }  # fmt: skip
    assert "'tomorrow' is not accepted" in error.message and "\n" not in error.to_json()


def test_a_task_too_large_for_the_table_is_refused(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a failure it would be retried for ever."""
    answers = {"t1": StoreFailure("too large", too_large=True)}
    monkeypatch.setattr(world.store, "create_many", lambda rows: [answers.get(row["taskId"], True) for row in rows])
    done, (error,) = imported(world, "".join(TASK % n for n in range(3)))
    assert done.tally == InsertCounts(inserted=2, refused=1) and done.complete
    assert (error.line, done.line) == (2, 4)


def test_ids_are_derived_from_attributes_and_never_change(world: InProcess) -> None:
    """Otherwise a file that an earlier release has imported would be inserted twice."""
    lines = [
        '{"action": "log", "payload": {"a": 1, "b": [1.5]}}\n',
        '{"payload":{"b":[1.5],"a":1},"action":"log"}\n',  # says the same
        '{"action": "log", "payload": {"a": 2, "b": [1.5]}}\n',
    ]
    done, _ = imported(world, "".join(lines))
    assert done.tally == InsertCounts(inserted=2, exists=1)
    again, _ = imported(world, "".join(reversed(lines)))  # in whatever order, under whatever name
    assert again.tally == InsertCounts(exists=3)
    other, _ = imported(world, lines[0], id_prefix="night-2-")
    assert other.tally.inserted == 1 and str(other.latest).startswith("night-2-")
    row = with_id({"action": "mail", "payload": {"to": "ada@example.com", "n": 1}, "dueAt": "2026-12-31T12:00:00Z"})
    assert row["taskId"] == "import-1174000ecd6427be19e2e658455c8f58"


def test_a_row_with_a_misspelt_id_or_without_an_attribute_is_refused(world: InProcess) -> None:
    for name in ("taskid", "task_id", "TaskId", "task-id", "TASK ID"):
        done, (error,) = imported(world, json.dumps({name: "a", "action": "log"}) + "\n")
        assert done.tally == InsertCounts(refused=1)
        assert error.field == name and error.message.endswith("expected the name taskId")
    done, (error,) = imported(world, "{}\n")
    assert done.tally == InsertCounts(refused=1) and "at least one attribute" in error.message


def test_state_attributes_are_refused_or_dropped(world: InProcess) -> None:
    times = {"taskDateTime": "2026-12-31#12:30", "dueAt": "2026-12-31T12:29:00Z"}
    line = json.dumps({"taskId": "a", **times, "status": "failed", "error": "x", "tenant": "t1"}) + "\n"
    done, _ = imported(world, line)
    assert done.tally == InsertCounts(refused=1)
    done, _ = imported(world, line, drop_state=True)
    assert done.tally == InsertCounts(inserted=1)
    row = world.row("a")
    assert (row["status"], row["dueAt"], row["tenant"]) == ("scheduled", "2026-12-31T12:29:00Z", "t1")
    assert "error" not in row


# -- files -------------------------------------------------------------------------------------------------------------

MIXED = "".join(TASK % n if n % 7 else f"bad {n}\n" for n in range(2000))
BAD = [n + 1 for n in range(2000) if n % 7 == 0]


@pytest.mark.parametrize(("records", "invocations"), [(10**9, 1), (150, 14)])
def test_a_file_is_imported_by_one_or_several_invocations(function: Lambda, records: int, invocations: int) -> None:
    function.records = records
    done = function.run(function.bucket.event("imports/x/tasks.ndjson", MIXED))
    assert [(one.order.part, one.skipped) for one in done] == [(part, None) for part in range(invocations)]
    assert [one.continued for one in done] == [True] * (invocations - 1) + [False]
    report = function.bucket.report("x/tasks.ndjson")
    assert {name: report[name] for name in ("file", "inserted", "exists", "refused", "errors")} == {
        "file": "imports/x/tasks.ndjson", "inserted": 2000 - len(BAD), "exists": 0, "refused": len(BAD),
        "errors": "errors/x/tasks.ndjson/001/",
    }  # fmt: skip
    assert sum(one.tally.inserted for one in done) == report["inserted"]
    assert {one.order.began for one in done} == {report["startedAt"]}
    assert [error["line"] for error in function.bucket.errors()] == BAD, "each once, in order"
    assert function.world.row("t1")["taskDateTime"] == "2026-12-31#12:30"


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("csv", "taskId,payload.text\n" + "".join(f't{n},"a\n{n}"\n' for n in range(300))),
        ("json", "".join(f'{{"taskId": "t{n}", "payload": {{"text": "a\\n{n}"}}}}\n' for n in range(300))),
    ],
)
def test_an_import_of_each_format_continues(function: Lambda, form: str, content: str) -> None:
    function.records = 40
    assert len(function.run(function.bucket.event(f"imports/tasks.{form}", content))) > 3
    assert function.bucket.report(f"tasks.{form}")["inserted"] == 300
    assert function.world.row("t299")["payload"] == {"text": "a\n299"}


def test_the_report_says_after_which_line_nothing_was_read(function: Lambda) -> None:
    for name, content, after in (("a", "taskId\na\nb\n", None), ("b", 'taskId\na\n"b\nc\nd\n', 3)):
        function.run(function.bucket.event(f"imports/{name}.csv", content))
        assert function.bucket.report(f"{name}.csv")["nothingReadAfterLine"] == after


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


@pytest.mark.parametrize("replaced", [False, True])
def test_a_deleted_or_replaced_file_is_skipped(function: Lambda, replaced: bool) -> None:
    event = function.bucket.event("imports/tasks.ndjson", MIXED)
    del function.bucket.objects["imports/tasks.ndjson"]
    if replaced:
        function.bucket.event("imports/tasks.ndjson", TASK % 1)
    (done,) = function.run(event)
    assert done.skipped == "imports/tasks.ndjson was deleted or replaced meanwhile"
    assert not [key for key in function.bucket.objects if not key.startswith("imports/")]


def test_an_unreachable_table_or_bucket_raises_so_that_the_event_is_retried(function: Lambda) -> None:
    def insert_lazily(rows: Iterable[Mapping[str, object]]) -> Iterator[InsertResult]:
        return (InsertUnknown(n, str(row.get("taskId")), StoreError("throttled")) for n, row in enumerate(rows))

    def fails() -> None:
        raise StoreError("cannot read imports/tasks.ndjson: slow down")

    function.insert_lazily = insert_lazily
    event = function.bucket.event("imports/tasks.ndjson", "".join(TASK % n for n in range(50)))
    with pytest.raises(StoreError, match=r"no further than line 1 of imports/tasks[.]ndjson: the table did not take"):
        function.handle(event)
    function.bucket.fails = fails
    with pytest.raises(StoreError, match=r"no further than line 1 .* slow down"):
        function.handle(event)
    assert not function.started and list(function.bucket.objects) == ["imports/tasks.ndjson"]


def test_a_bucket_that_does_not_answer_holds_up_its_import_alone(
    function: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-way through a file. Its process is killed, and Lambda repeats the event."""
    monkeypatch.setattr(record, "_CHUNK", 20_000)
    world, bucket, first = function.world, function.bucket, threading.Lock()
    s3 = Silent()

    def third_read() -> None:
        if len(bucket.reads) == 2 and first.acquire(blocking=False):
            s3.block()
            raise Dies

    def is_killed() -> None:
        with pytest.raises(Dies):
            function.handle(event)

    bucket.fails = third_read
    event = bucket.event("imports/tasks.ndjson", MIXED)
    good = {f"t{n}" for n in range(2000) if n % 7}
    with beside(is_killed), silence(s3):
        assert s3.was_called()
        function.run(bucket.event("imports/other.ndjson", TASK % 7))
        assert bucket.report("other.ndjson")["inserted"] == 1
        world.clock.to(NOON + timedelta(minutes=30, seconds=1))
        world.tick()
        before = {task_id for task_id, *_ in world.actions.ran}
        assert {"t1", "t7"} <= before < good | {"t7"}
        function.run(event)
        assert s3.answered == 0
    report = bucket.report("tasks.ndjson")
    assert report["inserted"] + report["exists"] == len(good)
    assert report["exists"] >= len(before) - 1
    assert [error["line"] for error in bucket.errors()] == BAD
    world.ticks(2)
    assert Counter(task_id for task_id, *_ in world.actions.ran) == dict.fromkeys(good | {"t7"}, 1)


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


# -- a file that is a batch --------------------------------------------------------------------------------------------

NEWS = (
    '{"batchId": "news", "action": "log", "dueAt": "2026-12-31T12:30:00Z", "subject": "news", '
    '"limitKey": "customer:1", "tenant": "t1"}\n'
)


def payload_lines(number: int, since: int = 0) -> str:
    return "".join(f'{{"n": {n}}}\n' for n in range(since, number))


def batch_of(function: Lambda) -> Any:
    return TaskClient(function.world.store, clock=function.world.clock).batches.get("news")


@pytest.mark.parametrize(("records", "invocations"), [(10**9, 1), (2, 3)])
def test_a_file_is_a_batch_loaded_by_one_or_several_invocations(
    function: Lambda, records: int, invocations: int
) -> None:
    function.records = records
    event = function.bucket.event("imports/batches/x/news.ndjson", NEWS + "\n" + payload_lines(1700))
    done = function.run(event)
    assert [(one.order.part, one.continued) for one in done] == [
        (part, part < invocations - 1) for part in range(invocations)
    ]
    report = function.bucket.report("batches/x/news.ndjson")
    assert {name: report[name] for name in ("batchId", "inserted", "exists", "refused", "errors")} == {
        "batchId": "news", "inserted": 1700, "exists": 0, "refused": 0, "errors": None,
    }  # fmt: skip
    batches = TaskClient(function.world.store, clock=function.world.clock).batches
    assert (batches.get("news").members, batches.get("news").limit_key) == (1700, "customer:1")
    views = list(batches.members("news"))
    assert [view.payload for view in views] == [{"n": n} for n in range(1700)]
    assert (views[7].row["tenant"], views[7].subject, views[7].action) == ("t1", "news", "log")
    assert {view.limit_key for view in views} == {"customer:1"}
    assert [one.skipped for one in function.run(event)] == ["imported before"]


def test_the_same_file_again_is_the_same_batch(function: Lambda) -> None:
    content = NEWS + payload_lines(1000)
    function.run(function.bucket.event("imports/batches/news.ndjson", content))
    function.run(function.bucket.event("imports/batches/renamed.jsonl", content, sequencer="002"))
    report = function.bucket.report("batches/renamed.jsonl")
    assert (report["inserted"], report["exists"], report["refused"]) == (0, 1000, 0)
    function.world.clock.to(NOON + timedelta(minutes=30, seconds=1))
    function.world.tick()
    assert Counter(task_id for task_id, *_ in function.world.actions.ran).most_common(1)[0][1] == 1


def test_a_table_that_fails_while_a_batch_is_loaded_has_the_event_repeated(
    function: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = function.bucket.event("imports/batches/news.ndjson", NEWS + payload_lines(1200))
    with monkeypatch.context() as patch:
        patch.setattr(function.world.store, "create_many", lambda rows: [StoreFailure("throttled") for _ in rows])
        with pytest.raises(StoreError, match="throttled"):
            function.handle(event)
    assert list(function.bucket.objects) == ["imports/batches/news.ndjson"] and batch_of(function).members is None
    function.run(event)
    assert batch_of(function).members == 1200
    function.records = 0
    with pytest.raises(StoreError, match=r"no further than line 1 of .*: time is up"):
        function.handle(function.bucket.event("imports/batches/news.ndjson", NEWS + payload_lines(9), sequencer="2"))


@pytest.mark.parametrize(
    ("key", "content", "line", "field", "message"),
    [
        ("news.csv", "n\n1\n", 1, "file", "expected a name that ends in one of .ndjson, .jsonl"),
        ("news", "", 1, "file", "expected a name that ends in one of"),
        ("news.ndjson", "", 1, "file", "expected the settings of the batch in its first line"),
        ("news.ndjson", "x\n", 1, "line", "x"),
        ("news.ndjson", payload_lines(3), 1, "batchId", "batchId: None is not accepted"),
        ("news.ndjson", NEWS.replace("log", "nope"), 1, "action", "expected one of"),
        ("news.ndjson", NEWS.replace('"dueAt"', '"dueat"'), 1, "dueat", "expected dueAt: under this name"),
        ("news.ndjson", '{"batchId": "news", "action": "log", "overSeconds": 60}', 1, "total", "the number of"),
        ("news.ndjson", '{"batchId": "news", "action": "log", "overSeconds": "2h"}', 1, "overSeconds", "whole seconds"),
        ("news.ndjson", '{"batchId": "news", "action": "log", "payloads": []}', 1, "payloads", "leave it out"),
        ("news.ndjson", NEWS + payload_lines(700) + "\n[]\n" + payload_lines(3), 703, "line", "expected a JSON object"),
        ("news.ndjson", NEWS + payload_lines(700) + '{"": 1}\n', 702, "payload", "payloads[700]"),
    ],
    ids=range(12),
)  # fmt: skip
def test_what_is_refused_of_a_batch_is_named_with_its_line(
    function: Lambda, key: str, content: str, line: int, field: str, message: str
) -> None:
    (done,) = function.run(function.bucket.event(f"imports/batches/{key}", content))
    assert done.tally == InsertCounts(refused=1) and not done.continued
    (error,) = function.bucket.errors()
    assert (error["line"], error["field"]) == (line, field)
    assert message in error["message"]
    report = function.bucket.report(f"batches/{key}")
    assert (report["refused"], report["errors"]) == (1, f"errors/batches/{key}/001/")


def test_a_repaired_file_goes_on_and_another_is_refused(function: Lambda) -> None:
    function.run(function.bucket.event("imports/batches/a.ndjson", NEWS + payload_lines(700) + "x\n"))
    assert batch_of(function).members is None
    function.run(function.bucket.event("imports/batches/a.ndjson", NEWS + payload_lines(701), sequencer="002"))
    assert batch_of(function).members == 701
    for n, content in enumerate((
        NEWS + payload_lines(702, since=1), NEWS.replace("t1", "t2") + payload_lines(701), NEWS + payload_lines(700),
    )):  # fmt: skip
        function.run(function.bucket.event(f"imports/batches/b{n}.ndjson", content))
        assert function.bucket.report(f"batches/b{n}.ndjson")["refused"] == 1
    messages = [error["message"] for error in function.bucket.errors()][1:]
    assert "payloads[0]: 'another payload' is not accepted" in messages[0]
    assert "differs" in messages[1] and "700" in messages[2]


def test_many_errors_are_written_to_several_files(function: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "_MAX_ERRORS", 5000)
    done = function.run(function.bucket.event("imports/tasks.ndjson", "bad\n" * 5000))
    assert len(done) > 3
    files = [key for key in function.bucket.objects if key.startswith("errors/")]
    assert len(files) == len(done)
    assert [error["line"] for error in function.bucket.errors()] == list(range(1, 5001))


def test_a_file_of_an_unknown_format_an_empty_one_and_a_folder(function: Lambda) -> None:
    function.run(function.bucket.event("imports/tasks.ndjson.gz", TASK % 1))
    (error,) = function.bucket.errors()
    assert error["field"] == "file" and "ends in one of" in error["message"]
    assert function.bucket.report("tasks.ndjson.gz")["refused"] == 1
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
