"""The processor's entry point: a process with a task in flight ends, however the invocation ended (protocol 11)."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tests.unit.engine.support import PacedClock, World, bucket_at, cannot, is_cursor, world

from dynatick import TaskClient, observability, wiring
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import ConfigurationError

APP = Path(__file__).parents[2] / "functions" / "processor" / "app.py"


class Ended(BaseException):
    """Raised instead of the end of the process."""


def context(seconds: float) -> SimpleNamespace:
    """The used part of Lambda's context, with this much remaining time."""
    return SimpleNamespace(
        function_name="processor", memory_limit_in_mb=128, invoked_function_arn="arn", aws_request_id="1",
        get_remaining_time_in_millis=lambda: int(seconds * 1000),
    )  # fmt: skip


@pytest.fixture
def w() -> World:
    return world(clock=PacedClock())


@pytest.fixture
def app(w: World, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The entry point over a table in memory."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Dynatick")
    monkeypatch.setattr(wiring, "load_settings", lambda: None)
    monkeypatch.setattr(wiring, "build_processor", lambda *_, processor=w.processor: processor)
    monkeypatch.setattr(wiring, "utc_now", w.clock)
    module = load()

    def exit_process(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(module.os, "_exit", exit_process)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    return module


def test_spans_are_exported_once_all_is_recorded_with_time_to_spare(
    app: ModuleType, w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.insert("t", at=bucket_at(1))
    w.clock.forward(minutes=1, seconds=1)
    flushed: list[tuple[float, object]] = []
    monkeypatch.setattr(app.tracing, "flush", lambda seconds: flushed.append((seconds, w.store.get("t")["status"])))
    app.handler(EVENT, context(60))
    assert flushed == [(2.0, "completed")]


def test_what_a_handler_prints_has_no_record_of_the_log_in_the_midst_of_its_line(
    app: ModuleType, w: World, capsys: pytest.CaptureFixture[str]
) -> None:
    w.insert("t", at=bucket_at(1))
    w.clock.forward(minutes=1, seconds=1)

    def prints(task: Task, context: ActionContext) -> None:
        sys.stdout.write("To ada")
        record = threading.Thread(target=sys.stdout.write, args=('{"action": "x"}\n',))
        record.start()
        record.join()
        sys.stdout.write("\n")

    w.behave(prints, "t")
    app.handler(EVENT, context(60))
    lines = capsys.readouterr().out.splitlines()
    assert {"To ada", '{"action": "x"}'} < {*lines}


@pytest.fixture
def hung(w: World) -> Iterator[threading.Event]:
    """A due task that hangs until the test ends; set once it runs. From then on the time of the invocation passes."""
    may_end, runs = threading.Event(), threading.Event()
    w.insert("hang", at=bucket_at(1))
    w.clock.forward(minutes=1, seconds=1)

    def hang(task: Task, context: ActionContext) -> None:
        assert isinstance(w.clock, PacedClock)
        w.clock.step = timedelta(milliseconds=50)
        runs.set()
        assert may_end.wait(30)

    w.actions.behaviour["hang"] = hang
    yield runs
    may_end.set()


SHORT = 2  # seconds of an invocation whose task hangs
EVENT = {"time": "2026-12-31T12:01:00Z"}


def refuses(*_: object, **__: object) -> None:
    raise cannot("do that")


def tick_record(w: World, patch: pytest.MonkeyPatch) -> None:
    create = w.rigged.create
    is_record = "_dynatick#tick"
    patch.setattr(w.rigged, "create", lambda row: (refuses if row["taskId"].startswith(is_record) else create)(row))


def end_write(w: World, patch: pytest.MonkeyPatch) -> None:
    w.rigged.throttled = lambda change: is_cursor(change) and change.set["lease"] is None


def page(w: World, patch: pytest.MonkeyPatch) -> None:
    w.rigged.before_poll = lambda bucket: refuses() if w.actions.times("hang") else None


def metrics(w: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(observability, "log_invocation", refuses)


def coordinator(w: World, patch: pytest.MonkeyPatch) -> None:
    """A fault of our own, in the middle of a pass."""
    patch.setattr("dynatick.engine.invocation.Execution.finish", refuses)


Fault = Callable[[World, pytest.MonkeyPatch], None]
FAULTS: list[Fault] = [tick_record, end_write, metrics, page, coordinator]


@pytest.mark.parametrize("fault", [*FAULTS, None], ids=lambda fault: fault.__name__ if fault else "logging")
def test_a_process_with_a_task_in_flight_ends_after_any_error(
    fault: Fault | None, w: World, app: ModuleType, hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault is None:
        monkeypatch.setattr(app.logger, "error", refuses)
    else:
        fault(w, monkeypatch)
    with pytest.raises(Ended):
        app.handler(EVENT, context(SHORT))
    assert hung.is_set()
    assert w.outcome("hang") is None


@pytest.mark.parametrize("fault", FAULTS[:3], ids=lambda fault: fault.__name__)
def test_a_process_without_a_task_in_flight_is_kept_and_the_error_raised(
    fault: Fault, w: World, app: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.insert("t", at=bucket_at(1))
    w.clock.forward(minutes=1, seconds=1)
    fault(w, monkeypatch)
    with pytest.raises(Exception, match="cannot"):
        app.handler(EVENT, context(60))
    assert w.outcome("t") == "completed"


# -- a processor that can't start ------------------------------------------------------------------------------------


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("processor_app", APP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("is_first", [True, False], ids=["first deployment", "later deployment"])
@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("HANDLERS_MODULE", "broken_handlers", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("HANDLERS_ENVIRONMENT", '{"PORT": 587}', "DYNATICK_HANDLERS_ENVIRONMENT: expected a JSON object whose values"),
        ("HANDLERS_SECRETS", '{"SMTP": "/mail/smtp"}', "DYNATICK_HANDLERS_SECRETS: SMTP is no reference; expected ssm"),
        ("SHARD_COUNT", "many", "DYNATICK_SHARD_COUNT: expected a whole number"),
        ("ALLOWED_ACTIONS", "nope", "AllowedActions: there is no action 'nope' here"),
    ],
)
def test_what_keeps_a_processor_from_starting_is_reported_everywhere(
    w: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture, setting: str, value: str, problem: str, is_first: bool,
) -> None:  # fmt: skip
    (tmp_path / "broken_handlers.py").write_text("import no_such_package\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in {
        "POWERTOOLS_METRICS_NAMESPACE": "Dynatick", "DYNATICK_TABLE": "tasks", "AWS_REGION": "eu-west-1",
        "AWS_LAMBDA_FUNCTION_NAME": "processor", f"DYNATICK_{setting}": value,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(wiring, "DynamoStore", lambda table, **_: w.store)
    monkeypatch.setattr(wiring, "utc_now", w.clock)
    if not is_first:
        w.next_tick()
    w.insert("waits", at=bucket_at(1 if is_first else 2))
    with pytest.raises(ConfigurationError):
        load()
    (logged,) = [vars(record) for record in caplog.records if vars(record).get("action") == "cannot_start"]
    assert problem in logged["problem"]
    assert (logged["unpublished"], logged["exc_info"] is not None) == (None, True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["CannotStart"] for line in lines if "CannotStart" in line] == [[1.0]]
    client = TaskClient(w.store, clock=w.clock)
    (finding,) = client.operations.health().findings
    assert (str(finding.kind), client.operations.doctor().is_healthy) == ("processor-fails", False)
    assert problem in finding.why
    w.next_tick()  # one that was deployed since
    assert client.operations.health().is_healthy
    assert w.outcome("waits") == "completed"


def test_it_still_raises_when_the_table_does_not_answer(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATICK_TABLE", "tasks")
    w.rigged.before_read = refuses
    monkeypatch.setattr(wiring, "DynamoStore", lambda table: w.store)
    assert "cannot do that" in str(wiring.publish_problem(ConfigurationError("HandlersModule", "no")))
