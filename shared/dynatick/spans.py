"""Spans of OpenTelemetry, for ``dynatick.tracing``, which imports this once the application uses OpenTelemetry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Thread
from typing import TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)

from dynatick.domain.traceparent import parse_traceparent, traceparent_of
from dynatick.engine.ports import described
from dynatick.errors import RateLimited, Reschedule

T = TypeVar("T")
Attributes = Mapping[str, object]
INSERT, ATTEMPT, REQUEST = SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT
_logger = logging.getLogger("dynatick.tracing")
_tracers: dict[TracerProvider, Tracer] = {}  # the latest; it takes as long to make one as to make a span


def current_traceparent() -> str | None:
    """That of the current span; None: there is none."""
    try:
        context = get_current_span().get_span_context()
        return traceparent_of(context.trace_id, context.span_id, context.trace_flags) if context.is_valid else None
    except Exception as error:
        _log(error)
        return None


class recorded:  # a function with ``contextmanager`` takes twice as long to enter and leave
    """A span that is the current one meanwhile, and has the error that ends it. Yields None if it can't be made.

    ``origin``: a traceparent, which may be malformed. ``is_child``: of that span, or only linked to it; None: a child
    of the current span. Attributes that are None are left out.
    """

    __slots__ = ("_span", "_token")

    def __init__(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        origin: str | None = None,
        *,
        is_child: bool | None = None,
    ) -> None:
        self._span: Span | None = None
        try:
            self._span = _started(name, kind, attributes, origin, is_child=is_child)
        except Exception as error:
            _log(error)

    def __enter__(self) -> Span | None:
        if self._span is not None:
            self._token = attach(set_span_in_context(self._span))
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        span = self._span
        if span is None:
            return
        detach(self._token)
        # A rate limit: the action has done nothing yet, and a span that is never ended is not exported.
        if isinstance(error, RateLimited):
            return
        try:
            _end(span, error)
        except Exception as raised:
            _log(raised)


def flush(seconds: float) -> None:
    """Has what is recorded exported; waits so long at most."""
    export = getattr(get_tracer_provider(), "force_flush", None)
    if export is not None:
        thread = Thread(target=quietly, args=(export,), name="dynatick-traces", daemon=True)
        thread.start()
        thread.join(seconds)


def quietly(call: Callable[[], T]) -> T | None:
    """Calls, and logs what is raised. Returns None then."""
    try:
        return call()
    except Exception as error:
        _log(error)
        return None


def _log(error: Exception) -> None:
    _logger.warning("a trace was not recorded", extra={"action": "trace_lost", "problem": described(error)})


def _started(name: str, kind: SpanKind, attributes: Attributes, origin: str | None, *, is_child: bool | None) -> Span:
    links: list[Link] = []
    context: Context | None = None
    if is_child is not None:
        context = Context()  # a thread may have inherited a current span that this has nothing to do with
        parent = parse_traceparent(origin)
        if parent is not None:
            flags = TraceFlags(parent.flags)
            remote = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
            if is_child:
                context = set_span_in_context(NonRecordingSpan(remote), context)
            else:
                links.append(Link(remote))
    given = {key: value for key, value in attributes.items() if isinstance(value, (str, int))}
    return _tracer().start_span(name, context, kind, given, links)


def _tracer() -> Tracer:
    provider = get_tracer_provider()
    tracer = _tracers.get(provider)
    if tracer is None:
        tracer = provider.get_tracer("dynatick")
        _tracers.clear()
        _tracers[provider] = tracer
    return tracer


def _end(span: Span, error: BaseException | None) -> None:
    try:
        if error is not None and not isinstance(error, Reschedule):
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR, described(error))
            span.record_exception(error)
    finally:
        span.end()
