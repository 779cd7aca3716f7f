"""A counter is declared once, and all that speaks of passes has it from there."""

from __future__ import annotations

from tests.builders import NOON
from tests.unit.client.support import client_of
from tests.unit.engine.support import NOON_MINUTE, world

from dynatick.client import TickView
from dynatick.domain.view import members
from dynatick.engine.counts import COUNTERS, PassReport, RecordResult, tick_record_id

NUMBERS = {counter.name: n for n, counter in enumerate(COUNTERS, 1)}


def test_each_counter_is_in_the_tick_record_the_view_and_the_form_of_the_http_api() -> None:
    report = PassReport(tick=NOON_MINUTE, shard=0, continuation=0, started_at=NOON, **NUMBERS)  # type: ignore[arg-type]
    w = world()
    w.tick()
    w.store.create({"taskId": tick_record_id(NOON_MINUTE, 0, 0), **report.to_row()})
    (view,) = [entry for entry in client_of(w).ticks() if isinstance(entry, TickView)]
    shown = view.to_row()
    described = {member.name: member.description for member in members(TickView)}
    for counter in COUNTERS:
        expected = NUMBERS[counter.name] + (NUMBERS["rejected"] if counter.name == "failed" else 0)
        assert report.to_row()[counter.attribute] == getattr(view, counter.name) == expected
        assert shown[counter.attribute] == expected
        assert described[counter.attribute] == counter.meaning


def test_each_result_of_an_attempt_has_a_counter() -> None:
    report = PassReport(tick=NOON_MINUTE, shard=0, continuation=0, started_at=NOON)
    for result in RecordResult:
        report.count(result)
        report.count(result)
    assert {name: number for name, number in report.by_name().items() if number} == {
        result.value: 2 for result in RecordResult
    }
