"""Why there is no task of an occurrence's id: each reason has its sentence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON

from dynatick.client.explanation import parse_occurrence_id
from dynatick.domain.instants import format_instant
from dynatick.testing.virtual_installation import VirtualInstallation


@pytest.fixture
def installation() -> VirtualInstallation:
    """At 13:00, with a schedule each five minutes that was paused from 12:20 to 12:40."""
    found = VirtualInstallation(None, start=NOON)
    found.client.schedules.insert(
        "often", "rate(5 minutes)", action="log", payload={"message": "x"}, start_date=NOON + timedelta(minutes=5)
    )
    found.advance(minutes=20, seconds=30)
    found.client.schedules.pause("often", "the move")
    found.advance(minutes=20)
    found.client.schedules.resume("often")
    found.advance(minutes=19, seconds=30)
    return found


def said(installation: VirtualInstallation, minutes: float, *, name: str = "often", revision: int = 1) -> str:
    task_id = f"{name}#{revision}#{format_instant(NOON + timedelta(minutes=minutes))}"
    found = installation.client.operations.explain(task_id)
    assert found.status is None and found.task_id == task_id
    assert (found.schedule_id == "often") == found.sentence.startswith("there is no such task: ")
    return found.sentence.removeprefix("there is no such task: ")


def test_an_occurrence_that_was_not_made_says_why(installation: VirtualInstallation) -> None:
    made = [one.task_id for one in installation.client.schedules.history("often") if one.task_id]
    (offset,) = {parsed[2].minute % 5 for one in made if (parsed := parse_occurrence_id(one)) is not None}
    assert offset == 0
    at = "2026-12-31T12:25:00Z"
    assert said(installation, 25) == f"the occurrence at {at} was not made: the schedule was paused"
    installation.client.delete(made[0])
    gone = parse_occurrence_id(made[0])
    assert gone is not None
    minutes = (gone[2] - NOON) / timedelta(minutes=1)
    assert said(installation, minutes).endswith("was made, and was deleted, or has expired")
    assert said(installation, 26) == "its schedule had no occurrence at 2026-12-31T12:26:00Z"


def test_an_occurrence_to_come_is_told_from_one_that_never_will(installation: VirtualInstallation) -> None:
    assert said(installation, 120) == "it is made at its tick, at 2026-12-31T14:00:00Z"
    assert said(installation, 121) == "its schedule has no occurrence at 2026-12-31T14:01:00Z"
    assert said(installation, 25, revision=7).startswith("the occurrences of its schedule are of revision 1 now")
    run_now = f"often#1#{format_instant(NOON)}#now"
    assert "no run-now made it" in installation.client.operations.explain(run_now).sentence


@pytest.mark.parametrize(
    ("expression", "window", "minutes", "tick"),
    [("cron(7 * * * ? *)", None, 127, "14:10"), ("cron(0 * * * ? *)", 60, 120, "14:40"), ("", None, 120, None)],
)
def test_one_to_come_is_made_at_the_tick_of_its_start_unless_its_schedule_is_paused(
    expression: str, window: int | None, minutes: int, tick: str | None
) -> None:
    found = VirtualInstallation(None, start=NOON, tick_minutes=5)
    found.advance(minutes=5)
    schedules = found.client.schedules
    schedules.insert(
        "often", expression or "rate(1 hour)", action="log", payload={"message": "x"}, start_date=NOON,
        flexible_time_window=window,
    )  # fmt: skip
    if tick is None:
        schedules.pause("often")
        assert said(found, minutes).startswith("its schedule is paused; unless it is resumed before, there is no occ")
    else:
        assert said(found, minutes) == f"it is made at its tick, at 2026-12-31T{tick}:00Z"


def test_an_outage_is_named_as_one(installation: VirtualInstallation) -> None:
    row = dict(installation.client.schedules.get("often").row)
    missed = {"from": "2026-12-31T12:45:00Z", "until": "2026-12-31T12:50:00Z", "occurrences": 2, "reason": "outage"}
    installation.client.store.put({**row, "missed": [missed]})
    for one in installation.client.schedules.history("often"):
        if one.task_id is not None and one.occurrence_at == NOON + timedelta(minutes=45):
            installation.client.delete(one.task_id)
    assert said(installation, 45).endswith("12:45:00Z was not made: its tick came too late, and catchUp skips it")


def test_an_id_without_such_a_schedule_is_that_of_no_task(installation: VirtualInstallation) -> None:
    assert said(installation, 25, name="none").startswith("there is no task of this id: it was never inserted")
    at = "2026-12-31T12:25:00Z"
    for wrong in ("often", "often#1", "often#1#noon", f"often##{at}", f"#1#{at}", "a#b#c"):
        assert parse_occurrence_id(wrong) is None, wrong
        assert installation.client.operations.explain(f"{wrong}!").schedule_id is None
