"""What a trace adds to an insert: inserts with and without one by turns, in one process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from dynatick.domain.task import Row
from dynatick.tracing import current_traceparent, insert_span
from dynatick_stack.bench.installation import Installation
from dynatick_stack.counting.counts import counting

ANSWER_SECONDS = 0.005
"""What is waited for the table beside the endpoint on this machine: DynamoDB answers a write in 5 to 10 ms."""

_LOADED = "opentelemetry.trace"


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def traces(inserts: int = 1_000) -> int:
    """Prints medians of CPU time, beside that answer: what else the machine does would be more than what is measured.
    Spans are recorded, and exported to nowhere."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    trace.set_tracer_provider(provider)
    with counting() as engine:
        installation = Installation.fresh(engine.url)
        client, bucket, ids = installation.client, installation.bucket(ahead=60), iter(range(10**9))
        create = installation.store.create

        def after_a_while(row: Row) -> bool:
            time.sleep(ANSWER_SECONDS)
            return create(row)

        installation.store.create = after_a_while  # type: ignore[method-assign]

        def insert() -> None:
            client.insert(f"t{next(ids)}", task_date_time=bucket, action="log")

        tracer = trace.get_tracer("bench")

        def insert_in_own_span() -> None:
            with tracer.start_as_current_span("insert"), _without_opentelemetry():
                insert()

        without, asked, own, traced = list[float](), list[float](), list[float](), list[float]()
        for _ in range(inserts):
            with _without_opentelemetry():
                without.append(_timed(insert))
                asked.append(_timed(_ask))
            with tracer.start_as_current_span("request"):
                own.append(_timed(insert_in_own_span))
                traced.append(_timed(insert))
        installation.delete()
    provider.shutdown()
    base = ANSWER_SECONDS + median(without)
    in_own, in_trace = ANSWER_SECONDS + median(own), ANSWER_SECONDS + median(traced)
    print(f"an insert, without OpenTelemetry:     {base * 1e6:,.0f} µs")
    print(f"of which, to find out that it is so:  {median(asked) * 1e6:.1f} µs, {median(asked) / base:.2%}")
    print(f"with a span of the SDK around it:     {in_own * 1e6:,.0f} µs, {in_own / base - 1:+.1%}")
    print(f"in a trace, with Dynatick's own span: {in_trace * 1e6:,.0f} µs, {in_trace / base - 1:+.1%}")
    return 0


def _ask() -> None:
    """What an insert does for traces where there are none."""
    with insert_span("log", task_id="t"):
        current_traceparent()


def _timed(call: Callable[[], None]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


@contextmanager
def _without_opentelemetry() -> Iterator[None]:
    """As in an application that has not imported it."""
    module = sys.modules.pop(_LOADED)
    try:
        yield
    finally:
        sys.modules[_LOADED] = module
