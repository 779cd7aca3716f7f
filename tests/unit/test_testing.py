"""dynatick.testing: the real engine in memory, on a clock that tests move; and its pytest plugin."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.sandbox.stream import matches, patterns

from dynatick import (
    Commit,
    CompleteLater,
    HandlerContext,
    PermanentError,
    Reschedule,
    RetryableError,
    TaskClient,
    TaskNotFound,
    task,
)
from dynatick.engine.cursor import Cursor, read_cursors
from dynatick.errors import DynatickError, InvalidInput
from dynatick.store.codec import encode
from dynatick.task_function import _Current
from dynatick.testing import Execution, Overdue, VirtualInstallation, Waiting
from dynatick.testing.table import Table

START = datetime(2027, 1, 1, tzinfo=UTC)  # a Friday
HERE = sys.modules[__name__]


@dataclass
class Mail:
    to: str
    text: str = "It is time"


@task("send-mail", timeout_seconds=60, retry_policy={"maximumRetryAttempts": 2, "minBackoffSeconds": 60})
def send_mail(mail: Mail) -> object:
    if mail.to == "nobody":
        raise PermanentError("no such mailbox")
    return {"sent": mail.to}


@task("poll-job")
def poll_job(payload: dict[str, object], context: HandlerContext) -> object:
    if context.turn < int(str(payload["turns"])):
        return Reschedule(after=30)
    return context.turn


@task("chain")
def chain(payload: dict[str, object]) -> object:
    left = int(str(payload["left"]))
    if left:
        chain.schedule({"left": left - 1}, delay=timedelta(days=1))
    return left


@task("wait-and-chain")
async def wait_and_chain(payload: dict[str, object]) -> object:
    await asyncio.sleep(0)  # wait: for no time: it lets others go first
    await asyncio.to_thread(chain.schedule, {"left": 0})
    return "chained"


@task("for-ever")
def for_ever(payload: dict[str, object]) -> None:
    for_ever.schedule(payload)


@task("fails-early")
def fails_early(payload: dict[str, object], context: HandlerContext) -> CompleteLater:
    assert _Current.client is not None
    _Current.client.fail(context.completion_token, "no such codec")
    return CompleteLater(timedelta(hours=1))


@task("interrupted")
def interrupted(payload: dict[str, object]) -> None:
    raise KeyboardInterrupt


@task("reserve", permanent=KeyError)
def reserve(payload: dict[str, object]) -> None: ...


@pytest.fixture
def virtual() -> VirtualInstallation:
    with VirtualInstallation(HERE, start=START) as installation:
        yield installation  # type: ignore[misc]


def second() -> VirtualInstallation:
    return VirtualInstallation(HERE, start=START, precision="second")


def after(**delta: float) -> datetime:
    return START + timedelta(**delta)


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_task_runs_when_its_time_has_come(virtual: VirtualInstallation) -> None:
    view = send_mail.schedule(Mail("ada"), delay=timedelta(hours=2))
    virtual.advance(hours=1)
    assert virtual.executed == []
    assert virtual.waiting == [
        Waiting(action="send-mail", task_id=view.task_id, payload={"to": "ada", "text": "It is time"},
                due_at=after(hours=2))
    ]  # fmt: skip
    virtual.advance(timedelta(hours=1))
    assert virtual.executed == [
        Execution(action="send-mail", task_id=view.task_id, payload=Mail("ada"), at=after(hours=2),
                  outcome="completed", result={"sent": "ada"}, due_at=after(hours=2))
    ]  # fmt: skip
    assert (virtual.waiting, virtual.now) == ([], after(hours=2))
    assert virtual.task(view.task_id).status == "completed"


def test_with_precision_tick_tasks_run_at_the_next_tick_with_precision_second_each_at_its_instant() -> None:
    instants = [after(seconds=seconds) for seconds in (90.25, 200.1, 200.2, 200.2, 201, 240, 240.001)]
    at_ticks = [after(minutes=minutes) for minutes in (2, 4, 4, 4, 4, 4, 5)]
    for precision, times in (("tick", at_ticks), ("second", instants)):
        with VirtualInstallation(HERE, start=START, precision=precision) as virtual:
            for n, at in enumerate(reversed(instants)):
                send_mail.schedule(Mail(str(n)), due_at=at)
            virtual.advance(seconds=90)
            assert virtual.executed == []
            virtual.advance(hours=1)
            assert [one.at for one in virtual.executed] == times


def test_with_precision_second_tasks_with_limit_keys_run_at_the_second_after_their_instant() -> None:
    instants = [after(seconds=seconds) for seconds in (90.25, 100, 100, 179.5)]
    with VirtualInstallation(HERE, start=START, precision="second", key_limits="customer=1") as virtual:
        for n, at in enumerate(instants):
            send_mail.schedule(Mail(str(n)), due_at=at, limit_key=f"customer:{n % 2}")
        virtual.advance(hours=1)
        assert [one.at for one in virtual.executed] == [after(seconds=seconds) for seconds in (91, 100, 100, 180)]


@pytest.mark.parametrize("precision", ["tick", "second"])
def test_the_members_of_a_batch_with_a_limit_key_run_in_its_turns(precision: str) -> None:
    mails = [Mail(str(n)) for n in range(6)]
    limits = "customer=1, mail=1:1/m,"
    with VirtualInstallation(HERE, start=START, precision=precision, key_limits=limits) as virtual:
        send_mail.schedule_batch(mails, batch_id="at-once", due_at=after(minutes=2), limit_key="customer:1")
        send_mail.schedule_batch(mails, batch_id="rate", due_at=after(minutes=2), limit_key="mail:1")
        send_mail.schedule(Mail("single"), due_at=after(minutes=2), limit_key="mail:1")
        virtual.advance(minutes=20)
        of_key = [one for one in virtual.executed if not one.task_id.startswith("at-once")]
        assert len(virtual.executed) == 13 and len(of_key) == 7
        starts = [one.at for one in of_key]
        assert all(following - one >= timedelta(minutes=1) for one, following in pairwise(starts))
        assert starts[-1] <= after(minutes=10)
        assert {one.at for one in virtual.executed if one.task_id.startswith("at-once")} == {after(minutes=2)}
        assert virtual.client.batches.get("rate").status == "completed"


def test_what_is_due_now_runs_without_moving_the_clock_further_than_to_the_tick(virtual: VirtualInstallation) -> None:
    virtual.run_due()
    assert virtual.now == START
    send_mail.schedule(Mail("now"))
    send_mail.schedule(Mail("later"), delay=timedelta(hours=1))
    virtual.run_due()
    assert ([one.payload.to for one in virtual.executed], virtual.now) == (["now"], after(minutes=1))
    with second() as other:
        send_mail.schedule(Mail("now"))
        other.run_due()
        assert ([one.payload.to for one in other.executed], other.now) == (["now"], START)


def test_the_clock_starts_at_the_present_on_a_tick_and_goes_to_an_instant() -> None:
    virtual = VirtualInstallation(HERE, tick_minutes=5)
    assert timedelta() <= datetime.now(UTC) - virtual.now < timedelta(minutes=6)
    assert (virtual.now.minute % 5, virtual.now.second, virtual.now.microsecond) == (0, 0, 0)
    virtual.advance_to(datetime(2060, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
    assert virtual.now == datetime(2060, 1, 1, tzinfo=UTC)
    assert VirtualInstallation(HERE, start=after(seconds=30)).now == after(seconds=30)


IDLE_TICKS = ("idleSince", "idleTicks", "lastTick", "plannedThrough")


@pytest.mark.parametrize(
    ("precision", "minutes", "shards"),
    [("tick", 1, 1), ("tick", 1, 3), ("tick", 15, 3), ("second", 1, 3), ("second", 5, 1)],
)
def test_skipped_ticks_would_have_found_nothing(
    precision: str, minutes: int, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lived() -> tuple[list[Execution], list[Mapping[str, object]]]:
        with VirtualInstallation(HERE, start=START, precision=precision, tick_minutes=minutes,
                                 shard_count=shards) as virtual:  # fmt: skip
            for n, hours in enumerate((0, 0.2, 0.21, 0.25, 3, 3.001, 7, 7.25, 7.5)):
                send_mail.schedule(Mail(str(n)), due_at=after(hours=hours), task_id=f"mail-{n}")
            virtual.fail(send_mail, with_=RetryableError("no"), times=4)
            send_mail.every("rate(90 minutes)", Mail("rate"), schedule_id="rate")
            send_mail.every("cron(7 */5 * * ? *)", Mail("cron"), schedule_id="cron")
            poll_job.schedule({"turns": 5}, due_at=after(hours=2), task_id="polled")
            for hours in (0.5, 0.01, 6, 2):
                virtual.advance(hours=hours)
                send_mail.schedule(Mail("meanwhile"), task_id=f"at-{hours}", delay=timedelta(minutes=50))
            virtual.advance(minutes=minutes * 3)
            store = virtual.client.store
            found = read_cursors(store, range(shards)).values()
            rows = [one.to_row() for one in found if isinstance(one, Cursor)]
            assert len(rows) == shards
            # An idle shard after the first is closed and drained later (``shards``), with the same ticks.
            return virtual.executed, [
                {name: value for name, value in row.items() if name != "version" and (n == 0 or name in IDLE_TICKS)}
                for n, row in enumerate(rows)
            ]

    skipping, cursors = lived()
    monkeypatch.setattr(VirtualInstallation, "_skip_idle_ticks", lambda self, end: None)
    every_tick, exact = lived()
    assert list(map(repr, skipping)) == list(map(repr, every_tick))
    assert len(skipping) > 20
    assert cursors == exact


def test_a_year_of_schedules_takes_seconds(virtual: VirtualInstallation) -> None:
    zone = ZoneInfo("Europe/Berlin")
    send_mail.every("cron(0 9 * * ? *)", Mail("team"), timezone=str(zone), schedule_id="stand-up")
    send_mail.every("cron(0 0 ? * MON *)", Mail("team"), schedule_id="mondays")
    began = time.process_time()
    virtual.advance(days=365)
    assert time.process_time() - began < 20  # it takes one or two
    runs = Counter(one.schedule_id for one in virtual.executed)
    assert runs == {"stand-up": 365, "mondays": 52}
    stand_ups = [one for one in virtual.executed_of(send_mail) if one.schedule_id == "stand-up"]
    assert {f"{one.at.astimezone(zone):%H:%M}" for one in stand_ups} == {"09:00"}
    assert [one.due_at for one in virtual.waiting][:2] == [after(days=365, hours=8), after(days=367)]


# -- what happens to tasks -------------------------------------------------------------------------------------------


def test_injected_failures_are_retried_with_backoff_until_attempts_are_used_up(virtual: VirtualInstallation) -> None:
    virtual.fail("send-mail", with_=RetryableError("no answer"), times=4)
    send_mail.schedule(Mail("first"), due_at=after(minutes=1), task_id="first")
    send_mail.schedule(Mail("second"), due_at=after(minutes=30), task_id="second")
    virtual.advance(hours=1)
    assert [(one.task_id, one.attempt, one.at, one.outcome) for one in virtual.executed_of(send_mail)] == [
        ("first", 1, after(minutes=1), "retried"), ("first", 2, after(minutes=2), "retried"),
        ("first", 3, after(minutes=4), "failed"), ("second", 1, after(minutes=30), "retried"),
        ("second", 2, after(minutes=31), "completed"),
    ]  # fmt: skip
    assert isinstance(virtual.executed[0].error, RetryableError)
    (letter,) = virtual.dead_letters
    assert (letter["taskId"], letter["error"], letter["attempt"]) == ("first", "no answer", 3)


def test_a_permanent_error_fails_at_once_and_a_redrive_runs_again(virtual: VirtualInstallation) -> None:
    send_mail.schedule(Mail("nobody"), task_id="lost")
    virtual.run_due()
    assert [one.outcome for one in virtual.executed] == ["failed"]
    assert str(virtual.executed[0].error) == "no such mailbox"
    virtual.answer(send_mail, lambda mail: f"found {mail.to}")
    virtual.client.redrive("lost")
    virtual.run_due()
    assert [(one.outcome, one.run, one.result) for one in virtual.executed[1:]] == [("completed", 2, "found nobody")]


def raising(error: Exception) -> Callable[[object], object]:
    def fail(payload: object) -> object:
        raise error

    return fail


def test_what_is_there_in_place_of_a_handler_ends_as_the_handler_would(virtual: VirtualInstallation) -> None:
    virtual.fail(reserve, with_=KeyError("ink"))
    first = reserve.schedule({"item": "pen"})
    virtual.advance(minutes=1)
    virtual.answer(reserve, raising(KeyError("ink")))
    second = reserve.schedule({"item": "pen"})
    virtual.advance(minutes=1)
    assert [one.outcome for one in virtual.executed] == ["failed", "failed"], "its error is declared permanent"
    assert {virtual.task(one.task_id).error for one in (first, second)} == {"KeyError: 'ink'"}


@pytest.mark.parametrize("action", [send_mail, "webhook"])
def test_an_answer_may_be_a_further_turn_or_an_async_function(virtual: VirtualInstallation, action: Any) -> None:
    def insert(task_id: str) -> None:
        if action is send_mail:
            send_mail.schedule(Mail("ada"), task_id=task_id)
        else:
            virtual.client.insert(task_id, action="webhook", payload={"url": "https://example.com"})

    virtual.answer(action, lambda _: Reschedule(after=3600))
    insert("turns")
    virtual.run_due()
    assert virtual.executed[0].outcome == "rescheduled"

    async def answer(payload: object) -> str:
        return "answered"

    virtual.answer(action, answer)
    insert("awaited")
    virtual.run_due()
    assert virtual.task("awaited").result == "answered"


def test_a_commit_that_writes_nothing_is_an_error(virtual: VirtualInstallation) -> None:
    same = [send_mail.transact_put(Mail(to), task_id="same") for to in ("ada", "bob")]
    virtual.answer(chain, lambda _: Commit(same))
    chain.schedule({"left": 1}, task_id="twice")
    virtual.run_due()
    (twice,) = virtual.executed
    assert (twice.outcome, twice.committed) == ("failed", ())
    assert "multiple operations on one item" in str(twice.error)
    assert str(twice.error) == virtual.task("twice").error
    with pytest.raises(InvalidInput, match="taskId: 'same' is not accepted; expected another id"):
        virtual.transact(same)

    virtual.transact(same[:1])
    virtual.answer(chain, lambda _: Commit(same[1:]))
    chain.schedule({"left": 1}, task_id="taken")
    virtual.run_due()
    (taken,) = virtual.executed_of(chain)[1:]
    assert (taken.outcome, "ConditionalCheckFailed" in str(taken.error)) == ("retried", True)


def test_a_handler_schedules_further_tasks_also_an_async_one(virtual: VirtualInstallation) -> None:
    chain.schedule({"left": 3})
    virtual.advance(days=10)
    assert [(one.result, one.at) for one in virtual.executed] == [(3 - n, after(days=n, minutes=1)) for n in range(4)]
    wait_and_chain.schedule({"left": 1}, delay=timedelta(hours=1))
    virtual.advance(hours=2)
    assert [(one.action, one.outcome, one.result) for one in virtual.executed[4:]] == [
        ("wait-and-chain", "completed", "chained"), ("chain", "completed", 0)
    ]  # fmt: skip


def test_an_overdue_occurrence_is_reported(virtual: VirtualInstallation) -> None:
    send_mail.every("cron(0 3 * * ? *)", Mail("ada"), schedule_id="nightly", expected_within_seconds=1800)
    virtual.advance(days=1)
    assert virtual.overdue == []
    virtual.fail(send_mail, with_=PermanentError("the mail server is gone"))
    at = after(days=1, hours=3)
    virtual.advance_to(at + timedelta(minutes=29))
    assert virtual.overdue == []
    (waiting,) = virtual.waiting  # for its next occurrence, although its row is read before
    assert (waiting.task_id, waiting.due_at) == ("nightly", at + timedelta(days=1))
    virtual.advance(minutes=1)
    assert virtual.overdue == [
        Overdue(schedule_id="nightly", first=at, last=at, occurrences=1, reason="failed: the mail server is gone")
    ]


def test_raw_rows_are_placed_and_malformed_ones_become_dead_letters(virtual: VirtualInstallation) -> None:
    store = virtual.client.store
    store.create({"taskId": "raw", "dueAt": "2027-01-01T01:00:00+01:00", "action": "send-mail", "payload": {"to": "b"}})
    store.create({"taskId": "malformed", "dueAt": "tomorrow", "action": "send-mail"})
    store.create({"taskId": "unknown", "action": "no-such-action"})
    assert [letter["taskId"] for letter in virtual.dead_letters] == ["malformed"]
    virtual.advance(hours=1)
    assert [(one.task_id, one.outcome) for one in virtual.executed] == [("raw", "completed"), ("unknown", "failed")]
    assert "there is no action 'no-such-action'" in str(virtual.executed[1].error)
    assert [letter["taskId"] for letter in virtual.dead_letters] == ["malformed", "unknown"]
    with pytest.raises(TaskNotFound):
        virtual.task("nobody's")


def test_built_in_actions_reach_nothing_and_are_recorded(virtual: VirtualInstallation) -> None:
    url = {"url": "https://example.com/hook"}
    virtual.client.insert("hook", action="webhook", payload=url)
    virtual.client.store.create({"taskId": "wrong", "action": "webhook", "payload": {"url": 7}})
    virtual.run_due()
    assert [(one.task_id, one.outcome, one.payload) for one in virtual.executed] == [
        ("hook", "completed", url), ("wrong", "failed", {"url": 7})
    ]  # fmt: skip


def test_a_handler_can_not_move_the_clock_nor_hide_ctrl_c_nor_schedule_for_now_for_ever(
    virtual: VirtualInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual.answer(chain, lambda payload: virtual.advance(hours=1))
    chain.schedule({"left": 0})
    virtual.run_due()
    assert "a handler can't move the clock" in str(virtual.executed[0].error)
    interrupted.schedule({})
    with pytest.raises(KeyboardInterrupt):
        virtual.run_due()
    monkeypatch.setattr("dynatick.testing.virtual_installation._MAX_AT_ONCE", 20)
    with second() as other:
        for_ever.schedule({})
        with pytest.raises(DynatickError, match="there is always more that is due at once"):
            other.run_due()


def test_a_token_that_needs_the_return_of_the_handler_that_uses_it_is_refused_at_once(
    virtual: VirtualInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError("it waits, and the virtual clock stands still")

    monkeypatch.setattr(time, "sleep", sleep)
    fails_early.schedule({}, task_id="a")
    virtual.run_due()
    assert "the handler of 'a' has not returned yet" in str(virtual.executed[0].error)


def test_task_functions_schedule_there_only_until_its_end() -> None:
    before = _Current.client
    with VirtualInstallation(HERE, start=START) as virtual:
        assert _Current.client is virtual.client
        with VirtualInstallation(HERE, start=START) as inner:
            send_mail.schedule(Mail("ada"))
            assert len(inner.waiting) == 1
        assert virtual.waiting == []
    assert _Current.client is before
    assert isinstance(virtual.client, TaskClient)


def test_a_report_shows_what_ran_and_what_waits(virtual: VirtualInstallation) -> None:
    virtual.fail(send_mail, with_=RetryableError("busy"))
    send_mail.schedule(Mail("ada"), task_id="mail-1")
    virtual.run_due()
    assert virtual.report() == (
        "now 2027-01-01T00:01:00Z\n"
        "executed 1\n"
        "  2027-01-01T00:01:00Z  send-mail  mail-1  retried: RetryableError: busy\n"
        "waiting 1\n"
        "  2027-01-01T00:02:00Z  send-mail  mail-1  attempt 2\n"
        "dead letters 0"
    )
    assert repr(virtual) == "<VirtualInstallation at 2027-01-01T00:01:00Z: 1 executed>"


NAIVE = datetime(2028, 1, 1)  # noqa: DTZ001
DELTA = "expected a timedelta, or its arguments such as hours=2"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: v.advance(), "advance: None is not accepted; expected a timedelta, or its arguments"),
        (lambda v: v.advance(timedelta(1), hours=1), DELTA), (lambda v: v.advance(fortnights=1), "fortnights"),
        (lambda v: v.advance(3600), DELTA), (lambda v: v.advance(days=10**7), DELTA),
        (lambda v: v.advance(hours=-1), "expected 2027-01-01T00:00:00Z or later: the clock can't go back"),
        (lambda v: v.advance_to(NAIVE), "instant: .* is not accepted"),
        (lambda v: v.advance_to("2028-01-01T00:00:00Z"), "expected an aware datetime"),
        (lambda v: v.fail("send-post", with_=RetryableError("no")), "action: 'send-post' is not accepted; .*send-mail"),
        (lambda v: v.fail(send_mail, with_="no"), "with_: 'no' is not accepted; expected an exception"),
        (lambda v: v.fail(send_mail, with_=RetryableError("no"), times=0), "times: 0 is not accepted"),
        (lambda v: v.answer("webhook", 7), "function: 7 is not accepted"),
        (lambda v: v.executed_of("send-post"), "action: 'send-post' is not accepted"),
        (lambda v: VirtualInstallation(HERE, precision="hour"), "precision: 'hour' is not accepted; expected tick or"),
        (lambda v: VirtualInstallation(HERE, precision="second", tick_minutes=15), "tick_minutes: 15 is not accepted"),
        (lambda v: VirtualInstallation(HERE, start=NAIVE), "start: .* is not accepted"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_by_name(
    call: Callable[[VirtualInstallation], object], message: str, virtual: VirtualInstallation
) -> None:
    with pytest.raises(InvalidInput, match=message):
        call(virtual)
    assert (virtual.now, virtual.executed) == (START, [])


@pytest.mark.parametrize(
    "status", ["body", "bucket", "cursor", "reconcile", "settings", "tick", "scheduled", "recurring", "running",
               "completed", "failed", "cancelled", "by-hand", None, 7]
)  # fmt: skip
def test_the_stream_shows_what_passes_the_templates_filter(status: object) -> None:
    table = Table(lambda task_id, row: None)
    row: dict[str, object] = {"taskId": "t"} | ({} if status is None else {"status": status})
    for event, change in (("INSERT", {}), ("MODIFY", {"note": 1})):
        table.put({**row, **change})
        record = {"eventName": event, "dynamodb": {"NewImage": encode(row)}}
        shown = any(matches(pattern, record) for pattern in patterns())
        assert len(table.take_records()) == shown
    table.put({**row, "note": 1})  # changes nothing
    table.delete("t")
    assert table.take_records() == []


# -- the pytest plugin -----------------------------------------------------------------------------------------------

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"


NOT_OURS = ("cacheprovider", "xdist", "schemathesis")  # plugins of this checkout, which take a second to import


def project(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a project of a user."""
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(f"-pno:{name}" for name in NOT_OURS)],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
    )  # fmt: skip


def files_of_the_how_to() -> dict[str, str]:
    files: defaultdict[str, str] = defaultdict(str)
    for name, code in re.findall(r"^```python\n# (\S+)\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL):
        files[name.replace(".", "__")] += code
    return files


def test_the_how_to_is_a_project_whose_tests_pass(tmp_path: Path) -> None:
    files = files_of_the_how_to()
    assert set(files) == {"handlers__py", "test_handlers__py", "test_to_the_second__py"}
    ran = project(tmp_path, **files)
    tests = sum(code.count("def test_") for code in files.values())
    assert f"{tests} passed" in ran.stdout, ran.stdout


def test_an_ini_option_names_the_module_of_the_handlers_and_a_failed_test_shows_what_waits(tmp_path: Path) -> None:
    (settings,) = re.findall(r"^```toml\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    files, mine = files_of_the_how_to(), tmp_path / "my_project"
    mine.mkdir()
    (mine / "handlers.py").write_text(files["handlers__py"])
    first_tests, hour = (
        files["test_handlers__py"].replace("from handlers", "from my_project.handlers"),
        "advance(hours=1)",
    )
    without = project(tmp_path, test_handlers__py=first_tests.replace(hour, "advance(minutes=1)"))
    assert "the module 'handlers' cannot be imported" in without.stdout
    assert "set the ini option dynatick_handlers to the name of yours" in without.stdout
    ran = project(tmp_path, pyproject__toml=settings)
    for part in ("1 failed, ", "- dynatick -", "waiting 1\n", "  send-reminder  send-reminder-"):
        assert part in ran.stdout, ran.stdout
