"""Follow-ups: what a handler schedules by its context exists once, however often the attempt is repeated."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from dynatick import HandlerContext, InvalidInput, Reschedule, RetryableError, TaskExists, task
from dynatick.domain.completion import follow_up_id
from dynatick.testing import VirtualInstallation

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "follow-ups.md"
START = datetime(2030, 1, 1, 9, tzinfo=UTC)
KEY = "order-7#1893488400000-1"
AT_ONCE = {"maximumRetryAttempts": 2, "minBackoffSeconds": 0}


@task("send")
def send(payload: dict[str, object]) -> None: ...


@task("charge", retry_policy=AT_ONCE)
def charge(payload: dict[str, object], context: HandlerContext) -> None:
    view = context.schedule(send, {"attempt": context.attempt}, name="receipt")
    assert view.effect == ("created" if context.attempt == 1 else "kept")
    context.schedule(send, {"attempt": context.attempt}, name="survey", delay=timedelta(hours=1))
    if context.attempt < int(str(payload["attempts"])):
        raise RetryableError("not yet")


@task("poll")
def poll(payload: dict[str, object], context: HandlerContext) -> object:
    context.schedule(send, {"turn": context.turn}, name="progress")
    return None if context.turn else Reschedule(after=1)


@task("misuse")
def misuse(payload: dict[str, object], context: HandlerContext) -> None:
    context.schedule(send, {}, name="one")
    for handler, name, expected in (
        (send, "one", "name: 'one' is not accepted; expected another name: this attempt has scheduled one"),
        (send, "a:b", "name: 'a:b' is not accepted; expected 1 to 100 letters, digits and . _ -, such as receipt"),
        (send, "", "name: '' is not accepted"),
        ("send", "two", "handler: 'send' is not accepted; expected a function that is declared by @task"),
    ):
        with pytest.raises(InvalidInput, match=expected):
            context.schedule(handler, {}, name=name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="delay"):
        context.schedule(send, {}, name="three", delay=60)  # type: ignore[arg-type]
    for number in range(99):
        context.schedule(send, {}, name=f"more-{number}", delay=timedelta(days=1))
    with pytest.raises(InvalidInput, match="expected at most 100 follow-ups of an attempt; a batch takes any number"):
        context.schedule(send, {}, name="one-more")


@task("endless")
def endless(payload: dict[str, object], context: HandlerContext) -> None:
    context.schedule(endless, {}, name="again")


@pytest.fixture
def virtual() -> Iterator[VirtualInstallation]:
    with VirtualInstallation(sys.modules[__name__], start=START) as installation:
        yield installation


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_repeated_attempt_makes_no_second(virtual: VirtualInstallation, attempts: int) -> None:
    charge.schedule({"attempts": attempts}, task_id="order-7")
    virtual.advance(hours=2)
    sent = [(one.task_id, one.payload) for one in virtual.executed_of(send)]
    assert sent == [(f"{KEY}:receipt", {"attempt": 1}), (f"{KEY}:survey", {"attempt": 1})]
    assert len(virtual.executed_of(charge)) == attempts
    view = virtual.task("order-7")
    assert (view.status, view.follow_ups, view.follow_up_of) == ("completed", (sent[0][0], sent[1][0]), None)
    follow_up = virtual.task(f"{KEY}:receipt")
    assert (follow_up.follow_up_of, follow_up.follow_ups, follow_up.attributes) == ("order-7", (), {})


def test_what_explain_says(virtual: VirtualInstallation) -> None:
    charge.schedule({"attempts": 1}, task_id="order-7")
    virtual.advance(minutes=2)
    explain = virtual.client.operations.explain
    assert f"inserted a follow-up, {KEY}:receipt" in [event.what for event in explain("order-7").events]
    assert explain(f"{KEY}:survey").events[0].what == "inserted, a follow-up of order-7"


def test_a_new_run_makes_new_ones(virtual: VirtualInstallation) -> None:
    charge.schedule({"attempts": 1}, task_id="order-7")
    virtual.advance(minutes=1)
    virtual.client.run_now("order-7")
    assert virtual.task("order-7").follow_ups == (), "they were the last run's"
    virtual.advance(hours=2)
    assert virtual.task("order-7").follow_ups == (f"{KEY[:-1]}2:receipt", f"{KEY[:-1]}2:survey")
    assert len(virtual.executed_of(send)) == 4


def test_each_turn_makes_its_own(virtual: VirtualInstallation) -> None:
    poll.schedule({}, task_id="order-7")
    virtual.advance(minutes=5)
    assert [one.task_id for one in virtual.executed_of(send)] == [f"{KEY}:progress", f"{KEY}.1:progress"]


def test_bad_input_is_refused(virtual: VirtualInstallation) -> None:
    misuse.schedule({}, task_id="order-7")
    virtual.advance(minutes=1)
    (one,) = virtual.executed_of(misuse)
    assert one.error is None
    assert len(virtual.task("order-7").follow_ups) == 20
    assert len(virtual.waiting) == 99 + (len(virtual.executed_of(send)) == 0)


def test_another_task_with_the_id_is_not_taken_for_it(virtual: VirtualInstallation) -> None:
    send.schedule({}, task_id=f"{KEY}:receipt", delay=timedelta(days=1))
    charge.schedule({"attempts": 1}, task_id="order-7")
    virtual.advance(minutes=10)
    assert {type(one.error) for one in virtual.executed_of(charge)} == {TaskExists}
    assert virtual.task("order-7").status == "failed"


def test_members_of_a_batch_do_it_too(virtual: VirtualInstallation) -> None:
    charge.schedule_batch([{"attempts": 1}, {"attempts": 2}], batch_id="orders", delay=timedelta(minutes=1))
    virtual.advance(hours=2)
    assert len(virtual.executed_of(send)) == 4
    found = {virtual.task(one.task_id).follow_up_of for one in virtual.executed_of(send)}
    assert found == {"orders/000000000", "orders/000000001"}
    assert virtual.client.batches.get("orders").status == "completed"


def test_long_chains_have_short_ids(virtual: VirtualInstallation) -> None:
    endless.schedule({}, task_id="order-7")
    virtual.advance(minutes=30)
    ids = [one.task_id for one in virtual.executed_of(endless)]
    assert len(ids) == len(set(ids)) > 20
    assert max(map(len, ids)) < 300
    assert follow_up_id("k" * 201, "again") != follow_up_id("k" * 202, "again")


def test_without_a_context_manager_they_come_into_the_same_installation() -> None:
    installation = VirtualInstallation(sys.modules[__name__], start=START)
    installation.client.insert("order-7", action="charge", payload={"attempts": 1})
    installation.advance(minutes=5)
    assert [one.task_id for one in installation.executed_of(send)] == [f"{KEY}:receipt"]


def test_the_examples_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    exec(compile(code, str(PAGE), "exec"), page.__dict__)
    with VirtualInstallation(page, start=START) as virtual:
        page.test_a_receipt_and_a_survey(virtual)
        assert f"`{virtual.task('order-7').follow_ups[0]}`" in text
