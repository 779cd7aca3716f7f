"""Traces by OpenTelemetry: the spans of inserts, attempts and webhooks.

Nothing here is the first to import OpenTelemetry: as long as neither the application nor a handlers module has, there
is no trace, and all of this does nothing. A fault in what records or exports spans fails no insert and no task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.task import Task
from dynatick.domain.traceparent import parse_traceparent

_SYSTEM: Final = "dynatick"
_BATCH_ID: Final = "dynatick.batch.id"


def is_in_use() -> bool:
    """Whether OpenTelemetry is imported: else no span can be current."""
    return "opentelemetry.trace" in sys.modules


def current_traceparent() -> str | None:
    """The current span, for the row of a task that is inserted in it. None: there is none."""
    if not is_in_use():
        return None
    from dynatick import spans

    return spans.current_traceparent()


def insert_span(
    action: object, *, task_id: str | None = None, batch_id: str | None = None
) -> AbstractContextManager[object]:
    """The span of an insert. What is inserted in it comes from it. ``action`` None: of several actions."""
    if not is_in_use():
        return nullcontext()
    from dynatick import spans

    attributes = _of_messaging("insert", "send", action)
    attributes["messaging.message.id"] = task_id
    attributes[_BATCH_ID] = batch_id
    return spans.recorded(f"insert {action}" if isinstance(action, str) else "insert", spans.INSERT, attributes)


def attempt_span(task: Task) -> AbstractContextManager[object]:
    """The span of an attempt, in which the handler runs.

    The first attempt is a child of the span that the task comes from. A further attempt, run or turn begins a trace of
    its own, with a link to that span; so does each member of a batch, of which there may be a million.
    """
    if not is_in_use():
        return nullcontext()
    from dynatick import spans

    attributes = _of_messaging("attempt", "process", task.action) | {
        "messaging.message.id": task.task_id,
        "dynatick.attempt": task.attempt,
        "dynatick.run": task.run,
        _BATCH_ID: task.batch_id,
        "dynatick.schedule.id": task.schedule_id,
    }
    is_first = task.attempt == task.run == 1 and not task.turn and task.batch_id is None
    return spans.recorded(f"attempt {task.action}", spans.ATTEMPT, attributes, task.traceparent, is_child=is_first)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a webhook. ``headers``: what the receiver's spans follow from. ``answered`` notes the status."""

    headers: Mapping[str, str]
    answered: Callable[[int], object]


@contextmanager
def request_span(task: Task, method: str, host: str, port: int) -> Iterator[Request]:
    """The span of a webhook's request. Without OpenTelemetry, the receiver's follow from the span that the task comes
    from, if it has one."""
    if not is_in_use():
        origin = parse_traceparent(task.traceparent)
        yield Request(_header(None if origin is None else str(origin)), lambda status: None)
        return
    from dynatick import spans

    attributes = {"http.request.method": method, "server.address": host, "server.port": port}
    with spans.recorded(method, spans.REQUEST, attributes) as span:

        def answered(status: int) -> None:
            if span is not None:
                spans.quietly(lambda: span.set_attribute("http.response.status_code", status))

        yield Request(_header(spans.current_traceparent()), answered)


def flush(seconds: float) -> None:
    """Has the recorded spans exported, before the process is frozen. Waits so long at most."""
    if is_in_use():
        from dynatick import spans

        spans.flush(seconds)


def _of_messaging(operation: str, kind: str, action: object) -> dict[str, object]:
    """What OpenTelemetry's conventions want to know of every message."""
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": action,
    }


def _header(traceparent: str | None) -> Mapping[str, str]:
    return {} if traceparent is None else {attr.TRACEPARENT: traceparent}
