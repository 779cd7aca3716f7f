"""Traces: which span is a child of which, and what happens without OpenTelemetry, or when it fails."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.unit.actions.support import a_context, a_server, a_task, a_webhook, run
from tests.unit.api.support import Caller

from dynatick import (
    AsyncTaskClient,
    HandlerContext,
    InvalidInput,
    MemoryStore,
    NewTask,
    PermanentError,
    Reschedule,
    TaskClient,
    TaskExists,
    task,
    tracing,
)
from dynatick.actions.registry import Registry
from dynatick.actions.webhook import Webhook
from dynatick.actions.webhook_url import Hosts
from dynatick.domain.traceparent import parse_traceparent
from dynatick.errors import RateLimited
from dynatick.testing import VirtualInstallation

START = datetime(2030, 1, 1, 9, tzinfo=UTC)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "traces.md"
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
AT_ONCE = {"maximumRetryAttempts": 2, "minBackoffSeconds": 0}


class Spans:
    """What was recorded."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def clear(self) -> None:
        self._exporter.clear()


def traceparent_of(span: ReadableSpan) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and (span.parent.trace_id, span.parent.span_id) == key(parent)


def key(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    made = TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made)  # once set by its function, it stays for good
    return made


@pytest.fixture
def spans(provider: TracerProvider) -> Spans:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(exporter)


@task("send", retry_policy=AT_ONCE)
def send(payload: dict[str, Any], context: HandlerContext) -> object:
    with trace.get_tracer("users").start_as_current_span("own"):
        pass
    if payload.get("fails", 0) >= context.attempt:
        raise ValueError("no such mailbox")
    if payload.get("turns", 0) > context.turn:
        return Reschedule(after=1)
    if payload.get("next"):
        context.schedule(send, {}, name="next")
    return None


@task("send-async")
async def send_async(payload: dict[str, Any]) -> None:
    await asyncio.sleep(0)  # wait: for no time: it lets others go first
    with trace.get_tracer("users").start_as_current_span("own"):
        pass


@task("done")
def done(payload: dict[str, Any]) -> None: ...


@pytest.fixture
def virtual() -> Iterator[VirtualInstallation]:
    with VirtualInstallation(sys.modules[__name__], start=START) as installation:
        yield installation


# Which span is a child of which


@pytest.mark.parametrize("action", ["send", "send-async"])
def test_the_first_attempt_is_a_child_of_the_insert_and_what_the_handler_does_of_the_attempt(
    spans: Spans, virtual: VirtualInstallation, action: str
) -> None:
    with trace.get_tracer("users").start_as_current_span("request"):
        virtual.client.insert("t", action=action, delay_seconds=3600, payload={})
    virtual.advance(hours=2)

    request, insert = spans.one("request"), spans.one(f"insert {action}")
    attempt, own = spans.one(f"attempt {action}"), spans.one("own")
    assert is_child(insert, request) and is_child(attempt, insert) and is_child(own, attempt)
    assert virtual.task("t").traceparent == traceparent_of(insert)
    assert virtual.task("t").attributes == {}
    assert (insert.kind, attempt.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert insert.attributes == {
        "messaging.system": "dynatick", "messaging.operation.name": "insert", "messaging.operation.type": "send",
        "messaging.destination.name": action, "messaging.message.id": "t",
    }  # fmt: skip
    assert attempt.attributes == {
        "messaging.system": "dynatick", "messaging.operation.name": "attempt", "messaging.operation.type": "process",
        "messaging.destination.name": action, "messaging.message.id": "t", "dynatick.attempt": 1, "dynatick.run": 1,
    }  # fmt: skip
    assert attempt.status.status_code is StatusCode.UNSET


def test_further_attempts_turns_and_runs_begin_traces_with_a_link(spans: Spans, virtual: VirtualInstallation) -> None:
    send.schedule({"fails": 1, "turns": 1}, task_id="t")
    virtual.advance(hours=1)
    virtual.client.run_now("t")
    virtual.advance(hours=1)

    insert, attempts = spans.one("insert send"), spans.named("attempt send")
    assert len(attempts) > 3
    assert is_child(attempts[0], insert) and not attempts[0].links
    for attempt in attempts[1:]:
        assert attempt.parent is None and links(attempt) == [key(insert)]
        assert attempt.context.trace_id != insert.context.trace_id
    failed = [one for one in attempts if one.status.status_code is StatusCode.ERROR]
    assert {one.attributes["dynatick.attempt"] for one in failed if one.attributes} == {1}
    assert {one.status.description for one in failed} == {"ValueError: no such mailbox"}
    assert failed[0].attributes is not None and failed[0].attributes["error.type"] == "ValueError"
    assert [event.name for event in failed[0].events] == ["exception"]


def test_an_attempt_has_nothing_to_do_with_what_runs_around_it(spans: Spans, virtual: VirtualInstallation) -> None:
    virtual.client.insert("t", action="done", due_at=START + timedelta(minutes=1))
    with trace.get_tracer("users").start_as_current_span("a test"):
        virtual.advance(hours=1)
    assert is_child(spans.one("attempt done"), spans.one("insert done"))


def test_members_of_a_batch_are_linked_and_what_follows_is_a_child(spans: Spans, virtual: VirtualInstallation) -> None:
    payloads = [{}, {"fails": 1}, {}]
    send.schedule_batch(payloads, batch_id="b", delay=timedelta(minutes=1), then=done.after({}))
    virtual.advance(hours=1)

    insert, members = spans.one("insert send"), spans.named("attempt send")
    assert insert.attributes is not None and insert.attributes["dynatick.batch.id"] == "b"
    assert len(members) == 4, "one of three was retried, with a row of its own"
    for member in members:
        assert member.parent is None and links(member) == [key(insert)]
        assert member.attributes is not None and member.attributes["dynatick.batch.id"] == "b"
    assert is_child(spans.one("attempt done"), insert)
    assert virtual.client.get("b/000000000").traceparent == traceparent_of(insert)


def test_a_batch_that_is_inserted_again_in_another_trace_is_the_same(
    spans: Spans, virtual: VirtualInstallation
) -> None:
    for _ in range(2):
        inserted = send.schedule_batch([{}, {}], batch_id="b", delay=timedelta(minutes=1))
    assert inserted.packs_written == 0


def test_a_follow_up_is_in_the_trace_of_its_task(spans: Spans, virtual: VirtualInstallation) -> None:
    send.schedule({"next": True}, task_id="t")
    virtual.advance(hours=1)
    inserts, attempts = spans.named("insert send"), spans.named("attempt send")
    assert len(attempts) == 2
    follow_up = next(one for one in inserts if one.parent is not None)
    assert is_child(follow_up, attempts[0]) and is_child(attempts[1], follow_up)


def test_occurrences_come_from_no_span(spans: Spans, virtual: VirtualInstallation) -> None:
    with trace.get_tracer("users").start_as_current_span("start-up"):
        done.every("rate(5 minutes)", {}, schedule_id="s")
    virtual.advance(minutes=11)
    attempts = spans.named("attempt done")
    assert len(attempts) >= 2
    for attempt in attempts:
        assert attempt.parent is None and not attempt.links
        assert attempt.attributes is not None and attempt.attributes["dynatick.schedule.id"] == "s"


def test_every_way_of_inserting_says_where_a_task_comes_from(spans: Spans, virtual: VirtualInstallation) -> None:
    client = virtual.client
    with trace.get_tracer("users").start_as_current_span("request") as request:
        client.insert_many([NewTask(task_id="many", action="done", delay_seconds=60)])
        done.schedule_many([{}], due_at=START + timedelta(minutes=1))
        list(client.insert_lazily([{"taskId": "lazy", "action": "done", "delaySeconds": 60}]))
        put = client.transact_put(NewTask(task_id="put", action="done", delay_seconds=60))["Put"]["Item"]
        asyncio.run(AsyncTaskClient(client).insert("async", action="done", delay_seconds=60))
        client.insert("raw-time", action="done")  # the scheduler completes it
    ended = traceparent_of(request)  # type: ignore[arg-type]
    assert client.get("lazy").traceparent == put["traceparent"] == ended
    many = spans.one("insert")
    assert is_child(many, spans.one("request")) and client.get("many").traceparent == traceparent_of(many)
    inserted = {
        span.attributes.get("messaging.message.id"): span for span in spans.named("insert done") if span.attributes
    }
    assert inserted.keys() == {None, "async", "raw-time"}
    for task_id in ("async", "raw-time"):
        assert is_child(inserted[task_id], spans.one("request"))
        assert client.get(task_id).traceparent == traceparent_of(inserted[task_id])
    virtual.run_due()
    attempts = {
        span.attributes.get("messaging.message.id"): span for span in spans.named("attempt done") if span.attributes
    }
    assert is_child(attempts["raw-time"], inserted["raw-time"])


def test_a_task_that_is_replaced_comes_from_the_insert_that_replaced_it(
    spans: Spans, virtual: VirtualInstallation
) -> None:
    client, later = virtual.client, START + timedelta(hours=1)

    def insert(mode: str, due_at: datetime, **payload: object) -> tuple[str | None, str | None]:
        spans.clear()
        view = client.insert("t", action="done", due_at=due_at, payload=payload, if_exists=mode)
        made = traceparent_of(spans.one("insert done"))
        return view.effect, "its own" if view.traceparent == made else view.traceparent

    assert insert("refuse", later) == ("created", "its own")
    first = client.get("t").traceparent
    assert insert("replace", later) == ("kept", first)
    assert insert("postpone", later + timedelta(hours=1)) == ("postponed", first)
    assert insert("replace", later, n=1) == ("replaced", "its own")
    virtual.advance(hours=2)
    assert insert("postpone", START + timedelta(hours=5), n=2) == ("restarted", "its own")


def test_a_task_that_is_replaced_without_a_span_comes_from_none(virtual: VirtualInstallation) -> None:
    client = virtual.client
    client.insert("t", action="done", delay_seconds=60, attributes={"traceparent": GIVEN})
    view = client.insert("t", action="done", delay_seconds=60, payload={"n": 1}, if_exists="replace")
    assert (view.effect, view.traceparent) == ("replaced", None)


def test_an_insert_that_fails_says_so(spans: Spans, virtual: VirtualInstallation) -> None:
    virtual.client.insert("t", action="done", delay_seconds=60)
    spans.clear()
    with pytest.raises(TaskExists):
        virtual.client.insert("t", action="done", delay_seconds=60)
    failed = spans.one("insert done")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None and failed.attributes["error.type"] == "TaskExists"


def test_a_row_has_no_traceparent_without_a_span(virtual: VirtualInstallation) -> None:
    virtual.client.insert("t", action="done", delay_seconds=60)
    assert "traceparent" not in virtual.task("t").row


# What is given


def test_one_that_is_given_goes_before_the_current_span(spans: Spans, virtual: VirtualInstallation) -> None:
    virtual.client.insert("t", action="done", delay_seconds=60, attributes={"traceparent": GIVEN})
    virtual.client.insert_many([{"taskId": "u", "action": "done", "delaySeconds": 60, "traceparent": GIVEN}])
    virtual.advance(minutes=5)
    assert virtual.task("t").traceparent == virtual.task("u").traceparent == GIVEN
    for attempt in spans.named("attempt done"):
        assert attempt.parent is not None and attempt.parent.is_remote
        assert (attempt.parent.trace_id, attempt.parent.span_id) == parse_traceparent(GIVEN)[:2]  # type: ignore[index]


MALFORMED = [
    "", "x", 1, None, [GIVEN], GIVEN.upper(), GIVEN + "-00", GIVEN.replace("00-", "01-", 1),
    f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", GIVEN[:-2] + "zz",
]  # fmt: skip


@pytest.mark.parametrize("value", MALFORMED)
def test_a_malformed_one_is_refused_by_the_client_and_ignored_on_a_raw_row(
    spans: Spans, virtual: VirtualInstallation, value: object
) -> None:
    with pytest.raises(InvalidInput, match=r"^traceparent: .*expected 00-, 32 and 16 hexadecimal digits in lower case"):
        virtual.client.insert("t", action="done", attributes={"traceparent": value})
    virtual.client.store.create({"taskId": "t", "action": "done", "traceparent": value})
    virtual.advance(minutes=2)
    assert virtual.task("t").status == "completed"
    attempt = spans.one("attempt done")
    assert attempt.parent is None and not attempt.links


def test_a_handler_gets_it(virtual: VirtualInstallation) -> None:
    got: list[tuple[str | None, object]] = []

    @task("get")
    def get(payload: dict[str, object], context: HandlerContext) -> None:
        got.append((context.traceparent, context.attributes))

    module = ModuleType("handlers_that_get")
    vars(module)["get"] = get
    with VirtualInstallation(module, start=START) as installation:
        installation.client.insert("t", action="get", attributes={"traceparent": GIVEN, "mine": 1})
        installation.advance(minutes=2)
    assert got == [(GIVEN, {"mine": 1})]


@pytest.fixture
def caller() -> Caller:
    made = Caller()
    made.publish_settings()
    return made


def test_the_http_api_takes_the_header(caller: Caller) -> None:
    task = {"taskId": "t", "dueAt": "2099-01-01T00:00:00Z", "action": "log"}
    of_body = GIVEN.replace("0af", "1af")
    for n, (method, header, body, expected) in enumerate(
        (
            ("POST", GIVEN, {}, GIVEN),
            ("POST", "malformed", {}, None),
            ("POST", GIVEN, {"traceparent": of_body}, of_body),
            ("PUT", GIVEN, {}, GIVEN),
            ("PUT", GIVEN, {"traceparent": of_body}, of_body),
        )
    ):
        task_id = f"t-{n}"
        path = "/v1/tasks" if method == "POST" else f"/v1/tasks/{task_id}"
        caller.ask(method, path, {**task, "taskId": task_id, **body}, traceparent=header)
        assert caller.client.get(task_id).traceparent == expected
    assert caller.refused_fields("POST", "/v1/tasks", {**task, "traceparent": "x"}) == ["#/traceparent"]
    assert (
        caller.send("POST", "/schedule-task", {"run_at": task["dueAt"], "action": "log"}, traceparent=GIVEN).status
        == 201
    )


def test_a_repeated_request_in_another_trace_is_a_repetition(caller: Caller) -> None:
    task = {"dueAt": "2099-01-01T00:00:00Z", "action": "log"}
    of_traces = [GIVEN, GIVEN.replace("0af", "1af")]
    answers = [caller.send("POST", "/v1/tasks", task, idempotency_key="k", traceparent=one) for one in of_traces]
    assert [answer.status for answer in answers] == [201, 200]


# Webhooks


def local() -> Webhook:
    return a_webhook(hosts=Hosts(private=["127.0.0.1"]))


def call(url: str, **payload: Any) -> None:
    """Calls a webhook as the attempt of a task that comes from GIVEN."""
    run(Registry({"webhook": local()}), "webhook", {"url": url, **payload}, traceparent=GIVEN)


def test_a_webhook_passes_its_own_span_on(spans: Spans) -> None:
    with a_server() as server:
        call(server.url)
        call(server.url, headers={"Traceparent": "mine"})
    first = spans.named("POST")[0]
    assert is_child(first, spans.named("attempt webhook")[0]) and first.kind is SpanKind.CLIENT
    assert first.context.trace_id == parse_traceparent(GIVEN).trace_id  # type: ignore[union-attr]
    assert server.requests[0].headers["traceparent"] == traceparent_of(first)
    assert server.requests[1].headers["traceparent"] == "mine"
    assert first.attributes == {
        "http.request.method": "POST", "server.address": "127.0.0.1", "server.port": server.port,
        "http.response.status_code": 200,
    }  # fmt: skip


def test_without_spans_a_webhook_passes_on_what_the_row_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "is_in_use", lambda: False)
    with a_server() as server:
        call(server.url)
        task = a_task({"url": server.url}, traceparent="malformed")
        local().run(task, a_context(task))
    assert server.requests[0].headers["traceparent"] == GIVEN
    assert "traceparent" not in server.requests[1].headers


def test_a_webhook_that_is_refused_is_an_error(spans: Spans) -> None:
    with a_server() as server:
        server.status = 404
        with pytest.raises(PermanentError):
            call(server.url)
    assert spans.one("attempt webhook").status.status_code is StatusCode.ERROR
    request = spans.one("POST")
    assert request.status.status_code is StatusCode.ERROR
    assert request.attributes is not None and request.attributes["http.response.status_code"] == 404


# Faults, and doing without


class Broken(SpanProcessor):
    """One that fails at the beginning, or at the end, of every span."""

    def __init__(self, at: str) -> None:
        self._at = at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._at == "start":
            raise RuntimeError("no memory")

    def on_end(self, span: ReadableSpan) -> None:
        if self._at == "end":
            raise RuntimeError("no collector")


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_fault_of_what_records_spans_fails_nothing(
    provider: TracerProvider, virtual: VirtualInstallation, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider.add_span_processor(Broken(at))
    virtual.client.insert("t", action="done", delay_seconds=60)
    virtual.client.insert("u", action="webhook", payload={"url": "https://example.com"}, delay_seconds=60)
    virtual.advance(minutes=5)
    assert [virtual.task(one).status for one in "tu"] == ["completed", "completed"]
    assert len(virtual.executed) == 2
    assert otel_context.get_current() == {}
    assert {record.action for record in caplog.records if record.name == "dynatick.tracing"} == {"trace_lost"}  # type: ignore[attr-defined]


def test_an_attempt_that_its_rate_limit_puts_off_is_no_span(spans: Spans) -> None:
    class Limited:
        def run(self, task: object, context: object) -> object:
            raise RateLimited(1.0)

    with pytest.raises(RateLimited):
        run(Registry({"limited": Limited()}), "limited")
    assert spans.all() == [] and otel_context.get_current() == {}


def test_spans_are_exported_before_the_process_is_frozen(provider: TracerProvider) -> None:
    flushed: list[int] = []

    class Exporting(SpanProcessor):
        def force_flush(self, timeout_millis: int = 30000) -> bool:
            flushed.append(timeout_millis)
            return True

    provider.add_span_processor(Exporting())
    tracing.flush(60)
    assert len(flushed) == 1


def test_an_exporter_that_hangs_is_not_waited_for(provider: TracerProvider) -> None:
    from threading import Event

    may_end, began = Event(), Event()

    class Hanging(SpanProcessor):
        def force_flush(self, timeout_millis: int = 30000) -> bool:
            began.set()
            return may_end.wait(60)

    provider.add_span_processor(Hanging())
    try:
        tracing.flush(0.01)
        assert began.wait(60) and not may_end.is_set()
    finally:
        may_end.set()


IMPORTED = "print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'opentelemetry'))"
USED = """
import sys
from dynatick import task
from dynatick.testing import VirtualInstallation

@task("done")
def done(payload): pass

with VirtualInstallation(sys.modules["__main__"]) as virtual:
    done.schedule({}, task_id="t")
    done.schedule_batch([{}], batch_id="b")
    virtual.advance(hours=1)
    assert virtual.task("t").status == "completed" and "traceparent" not in virtual.task("t").row
"""


@pytest.mark.parametrize("program", ["import sys, dynatick, dynatick.tracing\n", USED])
def test_nothing_of_opentelemetry_is_imported_uninvited(program: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program + IMPORTED], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout.split() == []


def test_a_pass_without_a_provider_is_a_pass_without_spans() -> None:
    with VirtualInstallation(sys.modules[__name__], start=START) as virtual:
        virtual.client.insert("t", action="done", delay_seconds=60)
        virtual.advance(minutes=5)
        assert virtual.task("t").traceparent is None and virtual.task("t").status == "completed"


# The page


def test_the_examples_of_the_page(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an exporter that is not ours to install."""
    exporter = ModuleType("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    vars(exporter)["OTLPSpanExporter"] = lambda timeout: InMemorySpanExporter()
    for name in ("exporter", "exporter.otlp", "exporter.otlp.proto", "exporter.otlp.proto.http"):
        monkeypatch.setitem(sys.modules, f"opentelemetry.{name}", ModuleType(name))
    monkeypatch.setitem(sys.modules, exporter.__name__, exporter)
    monkeypatch.setattr(trace, "set_tracer_provider", lambda made: monkeypatch.setattr(trace, "_TRACER_PROVIDER", made))
    text = PAGE.read_text(encoding="utf-8")
    module = ModuleType("page_of_traces")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)), vars(module))
    with VirtualInstallation(module, start=START) as virtual:
        module.test_the_reminder_is_in_the_trace_of_the_order(virtual)
    module.provider.shutdown()


def test_a_store_of_the_users_own_tests(spans: Spans) -> None:
    TaskClient(MemoryStore()).insert("t", delay_seconds=60, action="done")
    assert spans.one("insert done").attributes
