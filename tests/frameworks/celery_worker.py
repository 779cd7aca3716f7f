"""Run by pytest in the project of docs/how-to/celery.md: what is sent is executed by a real worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from celery import Celery as PlainCelery
from celery import Task, group
from celery.beat import SchedulingError
from celery.exceptions import Ignore, Retry
from celery.schedules import BaseSchedule, crontab, schedule
from shop import app, remind, report

from dynatick import InvalidInput, TaskExists, declared_schedules
from dynatick.celery import Celery, Scheduler, declared_entries, handler_for
from dynatick.testing import VirtualInstallation

RESULT_SECONDS = 60


@pytest.fixture(scope="module")
def worker() -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "solo", "--loglevel", "WARNING"]
    process = subprocess.Popen([*command, "--without-gossip", "--without-mingle", "--without-heartbeat"])
    yield
    process.terminate()
    process.wait(60)


def sent(dynatick: VirtualInstallation) -> list[tuple[str, list[object], object]]:
    return [(one.payload.task, one.payload.args, one.result) for one in dynatick.executed_of("celery")]


def test_a_worker_runs_it_when_it_is_due(worker: None, dynatick: VirtualInstallation) -> None:
    result = remind.apply_async([4711], countdown=7200)
    dynatick.advance(hours=1)
    assert (dynatick.executed, result.state) == ([], "PENDING")
    dynatick.advance(hours=1)
    assert result.get(timeout=RESULT_SECONDS) == "order 4711 is not paid yet"
    assert dynatick.task(result.id).status == "completed"
    assert dynatick.task(result.id).result == result.id


def test_a_worker_runs_periodic_tasks(worker: None, dynatick: VirtualInstallation) -> None:
    dynatick.client.schedules.sync(declared_schedules("handlers"), owner="shop")
    dynatick.advance(days=1)
    (of_report,) = [one for one in sent(dynatick) if one[0] == "shop.report"]
    assert app.AsyncResult(of_report[2]).get(timeout=RESULT_SECONDS) == "report of north"


def test_what_a_link_and_a_group_have_travels_with_the_message(worker: None, dynatick: VirtualInstallation) -> None:
    follow_up = report.si("south")
    follow_up.freeze()
    remind.apply_async([1], countdown=7200, link=follow_up)
    both = group(remind.s(2), report.s("west")).apply_async(countdown=7200)
    dynatick.advance(hours=2)
    assert app.AsyncResult(follow_up.id).get(timeout=RESULT_SECONDS) == "report of south"
    assert both.get(timeout=RESULT_SECONDS) == ["order 2 is not paid yet", "report of west"]


def test_arguments_come_as_they_were_given(dynatick: VirtualInstallation, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [date(2030, 1, 7), Decimal("1.10"), "ä", None, {"n": [1, 2.5]}]
    monkeypatch.setattr(PlainCelery, "send_task", lambda self, *args, **named: calls.append((args, named)))
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = []
    before = datetime.now(UTC)
    app.send_task("shop.other", given, {"a": b"b"}, countdown=7200, task_id="one", queue="slow", expires=9000)
    assert calls == []
    dynatick.advance(hours=2)
    (((name, args, kwargs), named),) = calls
    assert (name, args, kwargs) == ("shop.other", given, {"a": b"b"})
    assert (named["task_id"], named["queue"]) == ("one", "slow")
    expires = datetime.fromisoformat(str(named["expires"]))
    assert timedelta(seconds=9000) <= expires - before < timedelta(seconds=9060)
    assert (named["eta"], named["countdown"]) == (None, None)


@pytest.mark.parametrize(
    ("given", "problem"), [(object(), "not JSON serializable"), (float("nan"), "not JSON compliant")]
)
def test_what_json_cannot_hold_is_refused_with_its_name(
    dynatick: VirtualInstallation, given: object, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"args.*shop\.remind.*{problem}"):
        remind.apply_async([given], countdown=7200)
    assert dynatick.waiting == []


def test_what_is_due_soon_goes_to_the_broker_with_its_eta(
    dynatick: VirtualInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float | None] = []
    plain = PlainCelery.send_task
    monkeypatch.setattr(PlainCelery, "send_task", lambda self, *_, countdown, **__: calls.append(countdown))
    remind.apply_async([1], countdown=59)
    remind.delay(2)
    assert (calls, dynatick.waiting) == ([59, None], [])
    remind.apply_async([3], countdown=61)
    assert (len(calls), len(dynatick.waiting)) == (2, 1)
    monkeypatch.setitem(app.conf, "dynatick_min_delay", 3600)
    remind.apply_async([4], countdown=3000)
    assert len(calls) == 3
    assert plain is not PlainCelery.send_task


def test_an_eta_without_a_zone_is_utc_as_a_worker_has_it(dynatick: VirtualInstallation) -> None:
    result = remind.apply_async([1], eta=datetime(2035, 7, 1, 12))  # noqa: DTZ001 - as Celery takes it
    assert dynatick.task(result.id).due_at == datetime(2035, 7, 1, 12, tzinfo=UTC)
    other = remind.apply_async([1], eta="2035-07-01T12:00:00+02:00")
    assert dynatick.task(other.id).due_at == datetime(2035, 7, 1, 10, tzinfo=UTC)


def test_a_message_of_the_same_id_is_the_same_or_refused(dynatick: VirtualInstallation) -> None:
    for argument in (1, 0.1, 1e30, 1, 0.1, 1e30):
        assert remind.apply_async([argument], task_id=f"remind-{argument}", countdown=7200).id == f"remind-{argument}"
    with pytest.raises(TaskExists):
        remind.apply_async([2], task_id="remind-1", countdown=7200)
    remind.apply_async([1], task_id="remind-1", countdown=7200, retries=1)
    waiting = {"remind-1", "remind-0.1", "remind-1e+30", "remind-1.retry-1"}
    assert {one.task_id for one in dynatick.waiting} == waiting
    dynatick.advance(hours=2)
    assert sorted(str(one[2]) for one in sent(dynatick)) == ["remind-0.1", "remind-1", "remind-1", "remind-1e+30"]


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is sent to the broker: options by their names."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(PlainCelery, "send_task", lambda self, *_, **named: found.append(named))
    return found


def works(task: Task, message: Mapping[str, Any], expected: type[Exception], *arguments: object) -> None:
    """What a worker does with a message: the task runs, and ends with an exception of Celery's."""
    names = ("task_id", "retries", "replaced_task_nesting")
    given = {name: message[name] for name in names if message.get(name) is not None}
    task.push_request(id=given.pop("task_id"), args=arguments, kwargs={}, called_directly=False, **given)
    try:
        with pytest.raises(expected):
            task.run(*arguments)
    finally:
        task.pop_request()


def test_a_message_that_replaces_another_waits_each_time(
    dynatick: VirtualInstallation, messages: list[dict[str, Any]]
) -> None:
    @app.task(bind=True, shared=False, name="shop.poll")
    def poll(self: Task, job: str) -> None:
        if messages[-1].get("retries"):
            raise self.replace(poll.s(job).set(countdown=7200))
        raise self.retry(countdown=7200)

    messages.append({"task_id": "job"})
    for _ in range(4):
        works(poll, messages[-1], Ignore if messages[-1].get("retries") else Retry, "one")
        dynatick.advance(hours=2)
    rows = ["job.retry-1", "job.replaced-1", "job.replaced-1.retry-1", "job.replaced-2"]
    assert [one.task_id for one in dynatick.executed_of("celery")] == rows
    assert {one["task_id"] for one in messages} == {"job"}


def test_an_id_is_used_again_once_its_message_was_sent(
    dynatick: VirtualInstallation, messages: list[dict[str, Any]]
) -> None:
    @app.task(bind=True, shared=False, name="shop.sync")
    def sync(self: Task, day: int) -> None:
        raise self.retry(countdown=7200)

    for day in range(2):
        works(sync, {"task_id": "sync-ada"}, Retry, day)
        works(sync, {"task_id": "sync-ada"}, Retry, day)  # its message came twice
        sync.apply_async([day], task_id="daily", countdown=7200)
        assert {one.task_id for one in dynatick.waiting} == {"sync-ada.retry-1", "daily"}
        dynatick.advance(days=1)
    assert sorted(one["task_id"] for one in messages) == ["daily", "daily", "sync-ada", "sync-ada"]


def test_revoke_cancels_what_waits_and_tells_the_workers(
    dynatick: VirtualInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    revoked: list[object] = []
    monkeypatch.setattr(app.control, "broadcast", lambda command, arguments, **_: revoked.append(arguments["task_id"]))
    first, second, third = (remind.apply_async([n], countdown=7200) for n in range(3))
    first.revoke()
    app.control.revoke([second.id, "of no message of ours"], terminate=True)
    dynatick.advance(hours=2)
    assert [one[2] for one in sent(dynatick)] == [third.id]
    assert [dynatick.task(one.id).status for one in (first, second)] == ["cancelled", "cancelled"]
    third.revoke()
    assert revoked == [first.id, [second.id, "of no message of ours"], third.id]


def test_revoke_leaves_alone_what_is_no_message(dynatick: VirtualInstallation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.control, "broadcast", lambda *_, **__: None)
    dynatick.client.insert("order-7", action="log", due_at=dynatick.now + timedelta(days=1))
    app.control.revoke(["order-7", "", "x" * 3000])
    assert dynatick.task("order-7").status != "cancelled"


def test_a_broker_that_is_away_is_tried_again_under_the_same_id(
    dynatick: VirtualInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[object] = []

    def refused(self: object, *_: object, task_id: object, **__: object) -> None:
        ids.append(task_id)
        if len(ids) < 3:
            raise OSError("no broker")

    monkeypatch.setattr(PlainCelery, "send_task", refused)
    dynatick.client.insert("by-hand", action="celery", payload={"task": "shop.remind", "args": [1]})
    dynatick.advance(hours=1)
    assert [one.outcome for one in dynatick.executed] == ["retried", "retried", "completed"]
    assert len(set(ids)) == 1 and ids[0] == dynatick.task("by-hand").result


class Friday(BaseSchedule):
    """A schedule of one's own, as ``solar`` is."""


def entries(**beat_schedule: object) -> list[dict[str, object]]:
    other = Celery("other", set_as_current=False)
    other.conf.update(beat_schedule=beat_schedule, timezone="Europe/Berlin", result_backend="rpc://")

    @other.task(name="cleanup", shared=False, priority=3, time_limit=30)
    def cleanup() -> None: ...

    return list(declared_entries(other))


@pytest.mark.parametrize(
    ("when", "expression", "zone"),
    [
        (crontab(), "cron(* * * * ? *)", "Europe/Berlin"),
        (crontab(minute="*/20", hour="8-10"), "cron(0,20,40 8,9,10 * * ? *)", "Europe/Berlin"),
        (crontab(minute=0, hour=9, day_of_week="mon-fri"), "cron(0 9 ? * MON,TUE,WED,THU,FRI *)", "Europe/Berlin"),
        (crontab(0, 9, day_of_month="1,15", month_of_year="*/6"), "cron(0 9 1,15 1,7 ? *)", "Europe/Berlin"),
        (60, "rate(1 minute)", None),
        (timedelta(hours=2), "rate(120 minutes)", None),
    ],
)
def test_an_entry_is_a_schedule(when: object, expression: str, zone: str | None) -> None:
    entry = {"task": "cleanup", "schedule": when, "kwargs": {"n": 1}, "options": {"catch_up": "all", "expires": 60}}
    (row,) = [one for one in entries(nightly=entry) if one["taskId"] == "nightly"]
    assert (row["scheduleExpression"], row.get("scheduleExpressionTimezone")) == (expression, zone)
    assert (row["catchUp"], row["overlap"], row["action"]) == ("all", "allow", "celery")
    payload = row["payload"]
    assert isinstance(payload, dict)
    assert (payload["task"], payload["args"], payload["kwargs"]) == ("cleanup", [], {"n": 1})
    own = {"priority": 3, "time_limit": 30, "expires": 60, "headers": {"celery_beat_task": True}}
    assert {name: payload["options"].get(name) for name in own} == own


@pytest.mark.parametrize(
    "when",
    [
        timedelta(seconds=90),
        schedule(30),
        crontab(day_of_month=13, day_of_week="fri"),
        Friday(),
    ],
)
def test_an_entry_that_is_no_schedule_is_refused_with_its_name(when: object) -> None:
    with pytest.raises(InvalidInput, match=r"beat_schedule\.nightly\.schedule"):
        entries(nightly={"task": "cleanup", "schedule": when})


def test_a_beat_writes_the_entries_and_sends_nothing(dynatick: VirtualInstallation) -> None:
    beat = Scheduler(app)
    assert beat.tick() == beat.max_interval
    names = {one.schedule_id: one.owner for one in dynatick.client.schedules.list().schedules}
    assert names == {"report-north": "celery-shop", "celery.backend_cleanup": "celery-shop"}
    Scheduler(app)  # another one, beside it
    dynatick.advance(days=2)
    beat.tick()
    assert [one[0] for one in sent(dynatick)].count("shop.report") == 2
    app.conf.beat_schedule, kept = {}, app.conf.beat_schedule
    try:
        Scheduler(app)
        assert {one.schedule_id for one in dynatick.client.schedules.list().schedules} == {"celery.backend_cleanup"}
    finally:
        app.conf.beat_schedule = kept


def test_a_lazy_beat_writes_nothing(dynatick: VirtualInstallation) -> None:
    Scheduler(app, lazy=True)
    assert dynatick.client.schedules.list().schedules == ()


def test_a_beat_does_not_begin_with_a_name_that_another_has(dynatick: VirtualInstallation) -> None:
    dynatick.client.schedules.sync(declared_schedules("handlers"), owner="shop")
    with pytest.raises(SchedulingError, match=r"report-north: it belongs to 'shop'"):
        Scheduler(app)


def test_celery_finds_the_scheduler_by_its_name() -> None:
    from celery.apps.beat import Beat

    assert Beat(app=app, scheduler="dynatick", quiet=True).scheduler_cls in ("dynatick", Scheduler)
    from celery.beat import Service

    assert Service(app, scheduler_cls="dynatick").get_scheduler(lazy=True).__class__ is Scheduler


def test_only_what_is_asked_for_declares_the_entries() -> None:
    assert list(handler_for(app).declared()) == []
    names = {row["taskId"] for row in handler_for(app, beat_schedule=True).declared()}
    assert names == {"report-north", "celery.backend_cleanup"}
