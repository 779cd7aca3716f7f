"""Tasks as functions: scheduled with the payload that the function's type accepts, and with no other."""

from __future__ import annotations

import asyncio
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NotRequired
from uuid import UUID

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    SecretStr,
    computed_field,
    field_serializer,
)
from tests.builders import NOON
from tests.unit.actions.support import a_context, a_task
from typing_extensions import TypedDict

from dynatick import AsyncTaskClient, HandlerContext, TaskClient, task, use_client
from dynatick import task_function as module
from dynatick.actions.handlers import Handler
from dynatick.client import NoneInserted, Refused, ScheduleView
from dynatick.domain.buckets import Bucket
from dynatick.domain.retry import RetryPolicy
from dynatick.errors import ConfigurationError, InvalidInput, PermanentError, ScheduleDiffers, StoreError, TaskExists
from dynatick.store.memory import MemoryStore
from dynatick.testing import VirtualInstallation

ROOT = Path(__file__).parents[2]
EXISTING = ROOT / "docs" / "how-to" / "existing.md"
DUE = datetime(2027, 1, 1, 12, tzinfo=UTC)


@dataclass
class Reading:
    value: float | None = None
    more: dict[str, Any] = field(default_factory=dict)
    anything: Any = None


@dataclass
class Mail:
    to: str
    text: str
    at: datetime | None = None
    cents: Decimal = Decimal(0)
    tags: set[str] = field(default_factory=set)


class Order(BaseModel):
    number: int = Field(alias="orderNumber", ge=1)


@task("send-mail", retry_policy={"maximumRetryAttempts": 5})
def send_mail(mail: Mail) -> str:
    return f"To {mail.to}: {mail.text}"


@task("ship")
def ship(order: Order, context: HandlerContext) -> None: ...


@task("store")
def store(reading: Reading) -> None: ...


@task("count")
async def count(payload: dict[str, object]) -> int:
    return len(payload)


@pytest.fixture
def client() -> Iterator[TaskClient]:
    with VirtualInstallation(sys.modules[__name__], start=NOON) as virtual:
        yield virtual.client


# -- a task ------------------------------------------------------------------------------------------------------------


def test_a_task_has_action_payload_time_and_retry_policy(client: TaskClient) -> None:
    made = send_mail.schedule(Mail("ada", "hi", at=DUE, cents=Decimal("1.50"), tags={"x"}), due_at=DUE, task_id="one")
    found = client.get("one")
    assert (found.task_id, found.action, found.due_at) == (made.task_id, "send-mail", DUE)
    assert found.payload == {"to": "ada", "text": "hi", "at": "2027-01-01T12:00:00Z", "cents": "1.50", "tags": ["x"]}
    assert found.row["retryPolicy"]["maximumRetryAttempts"] == 5  # type: ignore[index]


def test_what_is_stored_comes_back_as_the_payload() -> None:
    mail = Mail("ada", "hi", at=DUE, cents=Decimal("1.50"), tags={"x", "y"})
    seen: list[Mail] = []

    @task("note")
    def note(mail: Mail) -> None:
        seen.append(mail)

    stored = a_task(dict(note.encode(mail)))
    Handler("note", note).run(stored, a_context(stored))
    assert seen == [mail]
    assert ship.encode(Order(orderNumber=7)) == {"orderNumber": 7}
    assert late.encode(Late(n=1)) == {"n": 1}, "its type is defined further down"


@pytest.mark.parametrize(
    ("payload", "when", "field", "expected"),
    [
        (Mail(5, "hi"), {}, "payload.to", "Input should be a valid string"),
        ({"to": "ada"}, {}, "payload.text", "it is missing"),
        ("ada", {}, "payload", "expected Mail"),
        (Mail("ada", "hi", tags={b"\xff"}), {}, "payload", "JSON cannot hold it"),
        (Mail("ada", "hi"), {"due_at": "tomorrow"}, "dueAt", "expected a bucket"),
        (Mail("ada", "hi"), {"delay": 60}, "delay", "expected a timedelta"),
        (Mail("ada", "hi"), {"delay": timedelta(seconds=-1)}, "delaySeconds", "expected a number of seconds"),
    ],
)  # fmt: skip
def test_a_wrong_payload_or_time_is_refused_before_anything_is_written(
    client: TaskClient, payload: Any, when: dict[str, Any], field: str, expected: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        send_mail.schedule(payload, **(when or {"due_at": DUE}), task_id="one")
    assert (refused.value.field, expected in refused.value.expected) == (field, True)
    assert client.store.get("one") is None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_wherever_a_payload_has_it(client: TaskClient, number: float) -> None:
    inner = Reading(anything=number)
    for reading, name in (
        (Reading(number), "payload.value"),
        (Reading(more={"a": None, "b": number}), "payload.more.b"),
        (Reading(anything=[1.5, (number,)]), "payload.anything[1][0]"),
        (Reading(anything=inner), "payload.anything.anything"),
    ):
        with pytest.raises(InvalidInput) as refused:
            store.schedule(reading, due_at=DUE, task_id="one")
        assert refused.value.field == name
    assert client.store.get("one") is None


def test_the_same_set_is_the_same_payload_in_whatever_order_its_members_are(client: TaskClient) -> None:
    one, other = {0, 8}, {8, 0}  # their hashes collide, as those of texts do in one process or another
    assert list(one) != list(other)
    for payload in ({"numbers": one}, {"numbers": other}):
        assert store.encode(Reading(more=payload, anything=[frozenset(payload["numbers"])])) == {
            "value": None,
            "more": {"numbers": [0, 8]},
            "anything": [[0, 8]],
        }


@dataclass
class Parcel(Mail):
    weight: int = 0


class Line(BaseModel):
    sku: str


class CountedLine(Line):
    count: int = 1
    total: int = Field(0, exclude=True)


class Cart(BaseModel):
    lines: list[Line] = Field(alias="cartLines")


class Place(TypedDict):
    city: str
    visits: NotRequired[dict[str, Any]]


class Open(TypedDict):
    __pydantic_config__ = ConfigDict(extra="ignore")  # type: ignore[misc]
    city: str


class Login(BaseModel):
    password: SecretStr


class Reader(BaseModel):
    password: SecretStr

    @field_serializer("password")
    def written(self, password: SecretStr) -> str:
        return password.get_secret_value()


def taking(kind: Any) -> Any:
    def take(payload: Any) -> None: ...

    take.__annotations__["payload"] = kind
    return task("take")(take)


@pytest.mark.parametrize(
    ("kind", "payload", "field"),
    [
        (Mail, Parcel("ada", "hi", weight=5), "payload.weight"),
        (Cart, Cart(cartLines=[Line(sku="a"), CountedLine(sku="b", count=2)]), "payload.cartLines.1.count"),
        (Place, {"city": "Bonn", "vists": {}}, "payload.vists"),
        (dict[str, Place], {"here": {"city": "Bonn", "zip": 53111}}, "payload.here.zip"),
        (Login, Login(password="hunter2"), "payload.password"),
    ],
)
def test_what_would_not_arrive_is_refused(kind: Any, payload: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        taking(kind).encode(payload)
    assert refused.value.field == field
    assert "hunter2" not in str(refused.value)


class SubMail(Mail):
    """Of a class that adds nothing."""


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime
    id: UUID
    cents: Decimal
    count: int = 1


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int
    numbers: Json[list[int]] = Field(default_factory=list)
    _area: int = PrivateAttr(5)

    @computed_field
    def area(self) -> int:
        return self.side**2


class Opaque:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth of an array is ambiguous")


@dataclass
class Tagged:
    tags: Any = ()
    mark: Annotated[Any, PlainSerializer(str), PlainValidator(lambda text: Opaque())] = None


@pytest.mark.parametrize(
    ("kind", "payload", "encoded"),
    [
        (Mail, SubMail("ada", "hi"), {"to": "ada", "text": "hi", "at": None, "cents": "0", "tags": []}),
        (Square, Square(side=2, numbers="[1,2]"), {"side": 2, "numbers": "[1,2]"}),
        (Open, {"city": "Bonn", "zip": "53111"}, {"city": "Bonn"}),
        (Place, {"city": "Bonn", "visits": {"at": DUE}}, {"city": "Bonn", "visits": {"at": "2027-01-01T12:00:00Z"}}),
        (Reader, Reader(password="hunter2"), {"password": "hunter2"}),
        (Login, Login(password=""), {"password": ""}),
        (CountedLine, CountedLine(sku="a", total=7), {"sku": "a", "count": 1}),
        (Tagged, Tagged([Line(sku="a")], "x"), {"tags": [{"sku": "a"}], "mark": "x"}),
        (
            Strict,
            Strict(at=DUE, id=UUID(int=7), cents=Decimal("1.50")),
            {"at": "2027-01-01T12:00:00Z", "id": str(UUID(int=7)), "cents": "1.50", "count": 1},
        ),
    ],
)
def test_what_arrives_is_accepted(kind: Any, payload: Any, encoded: dict[str, object]) -> None:
    assert taking(kind).encode(payload) == encoded


def test_a_strict_type_takes_from_a_row_what_it_takes_from_json() -> None:
    seen: list[Strict] = []

    @task("take")
    def take(payload: Strict) -> None:
        seen.append(payload)

    handler = Handler("take", take)
    given = Strict(at=DUE, id=UUID(int=7), cents=Decimal("1.50"))
    handler.run(row := a_task(dict(take.encode(given))), a_context(row))
    assert seen == [given]
    for part, problem in (
        ({"count": "1"}, "payload.count: .*valid integer"),
        ({"id": "7"}, "payload.id: .*valid UUID"),
    ):
        with pytest.raises(PermanentError, match=f"^{problem}[^;]*$"):
            handler.run(row := a_task({**take.encode(given), **part}), a_context(row))


def test_the_same_call_makes_no_second_task_if_it_has_a_due_time(client: TaskClient) -> None:
    first = send_mail.schedule(Mail("ada", "hi"), due_at=DUE)
    for same in (DUE, "2027-01-01T13:00:00+01:00", DUE.timestamp()):
        with pytest.raises(TaskExists, match=first.task_id):
            send_mail.schedule(Mail("ada", "hi"), due_at=same)
    others = [
        send_mail.schedule(Mail("ada", "ho"), due_at=DUE),
        send_mail.schedule(Mail("ada", "hi"), due_at=DUE + timedelta(seconds=1)),
        send_mail.schedule(Mail("ada", "hi"), due_at=Bucket.parse("2027-01-01#12:00")),
        count.schedule({"to": "ada"}, due_at=DUE),
        send_mail.schedule(Mail("ada", "hi")),
        send_mail.schedule(Mail("ada", "hi")),
    ]
    assert len({first.task_id, *(one.task_id for one in others)}) == 7
    assert first.task_id.startswith("send-mail-")


# -- many --------------------------------------------------------------------------------------------------------------


def test_many_at_one_time_or_each_at_its_own(client: TaskClient) -> None:
    counts = send_mail.schedule_many((Mail(f"m{n}", "hi") for n in range(60)), due_at=DUE)
    assert (counts.inserted, counts.all_in) == (60, True)
    again = send_mail.schedule_many([Mail("m0", "hi"), Mail("m60", "hi")], due_at=DUE)
    assert (again.inserted, again.exists) == (1, 1)
    assert send_mail.schedule_many([]).total == 0
    new = (send_mail.new_task(Mail("m", "hi"), delay=timedelta(minutes=n), task_id=f"m{n}") for n in range(3))
    assert client.insert_many(new).inserted == 3
    assert client.get("m2").due_at == NOON + timedelta(minutes=2)


def test_one_that_is_refused_does_not_affect_the_others(client: TaskClient) -> None:
    counts = send_mail.schedule_many([Mail("a", "hi"), Mail(5, "hi"), Mail("b", "hi")])  # type: ignore[arg-type]
    assert (counts.inserted, counts.refused) == (2, 1)
    (problem,) = counts.problems
    assert isinstance(problem, Refused)
    assert (problem.position, problem.error.field) == (1, "payload.to")
    with pytest.raises(NoneInserted, match=r"payload\.to"):
        send_mail.schedule_many([Mail(5, "hi")])  # type: ignore[arg-type]


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_a_schedule(client: TaskClient) -> None:
    made = send_mail.every(
        "cron(0 9 ? * MON-FRI *)", Mail("team", "stand-up"), timezone="Europe/Berlin", schedule_id="standup",
        start_date=DUE, overlap="allow", catch_up="all", expected_within_seconds=900,
    )  # fmt: skip
    found = client.schedules.get(made.schedule_id)
    assert (found.expression, found.timezone, found.action) == ("cron(0 9 ? * MON-FRI *)", "Europe/Berlin", "send-mail")
    assert (found.start_date, found.overlap, found.catch_up) == (DUE, "allow", "all")
    assert (found.expected_within_seconds, found.payload["text"]) == (900, "stand-up")


def test_the_same_schedule_again_changes_nothing_and_another_is_refused(client: TaskClient) -> None:
    mail = Mail("team", "stand-up")
    first = send_mail.every("rate(1 hour)", mail, schedule_id="s")
    assert send_mail.every("rate(1 hour)", mail, schedule_id="s").version == first.version
    client.schedules.pause("s")
    assert send_mail.every("rate(1 hour)", mail, schedule_id="s").state == "DISABLED"
    send_mail.schedule(mail, task_id="t")
    changes: tuple[dict[str, Any], ...] = (
        {"timezone": "Europe/Berlin"}, {"end_date": DUE}, {"expected_within_seconds": 900}, {"schedule_id": "t"},
        {"payload": Mail("team", "retro")}, {"expression": "rate(2 hours)"},
    )  # fmt: skip
    for change in changes:
        with pytest.raises(TaskExists):
            send_mail.every(**({"expression": "rate(1 hour)", "payload": mail, "schedule_id": "s"} | change))
    with pytest.raises(TaskExists):
        count.every("rate(1 hour)", {}, schedule_id="s")


def test_a_rate_is_the_same_schedule_at_a_later_tick() -> None:
    with VirtualInstallation(sys.modules[__name__], start=NOON) as virtual:
        first = send_mail.every("rate(1 hour)", Mail("team", "stand-up"), schedule_id="s")
        virtual.advance(minutes=7)
        again = send_mail.every("rate(1 hour)", Mail("team", "stand-up"), schedule_id="s")
    assert again.start_date == first.start_date == NOON + timedelta(minutes=1)


def test_a_schedule_that_differs_is_named_kept_or_replaced(client: TaskClient) -> None:
    def every(expression: str = "cron(0 9 ? * MON *)", **values: Any) -> ScheduleView:
        mail = Mail("team", values.pop("text", "stand-up"))
        return send_mail.every(expression, mail, schedule_id="s", **values)

    first = every(overlap="allow", end_date=DUE + timedelta(days=30))
    with pytest.raises(ScheduleDiffers) as refused:
        every("cron(0 8 ? * MON *)", text="secret")
    assert str(refused.value) == (
        "taskId: a schedule 's' exists already, and its expression is 'cron(0 9 ? * MON *)', "
        "not 'cron(0 8 ? * MON *)', "
        "its end_date is 2027-01-31T12:00:00+00:00, not None, its overlap is 'allow', not 'skip', its payload differs; "
        'if_exists="replace" changes it'
    )
    assert every("rate(1 hour)", if_exists="keep").version == first.version
    changed = every("cron(0 8 ? * MON *)", text="moved", if_exists="replace")
    assert (changed.expression, changed.end_date, changed.overlap) == ("cron(0 8 ? * MON *)", None, "skip")
    assert every("cron(0 8 ? * MON *)", text="moved").version == changed.version, "nothing differs now"
    with pytest.raises(ScheduleDiffers, match=r"its action is 'send-mail', not 'count'.* can't be changed"):
        count.every("cron(0 8 ? * MON *)", {}, schedule_id="s", if_exists="replace")
    with pytest.raises(InvalidInput, match="if_exists: 'postpone' is not accepted; expected refuse, keep or replace"):
        every(if_exists="postpone")


def test_the_id_of_a_schedule_is_derived(client: TaskClient) -> None:
    first = send_mail.every("rate(1 hour)", Mail("a", "hi"))
    assert send_mail.every("rate(1 hour)", Mail("a", "hi")).schedule_id == first.schedule_id
    assert send_mail.every("rate(1 hour)", Mail("b", "hi")).schedule_id != first.schedule_id
    with pytest.raises(InvalidInput, match="scheduleExpression"):
        send_mail.every("hourly", Mail("a", "hi"))


def test_async_code_schedules_by_its_own_client_or_in_a_thread(client: TaskClient) -> None:
    async def use() -> None:
        async with AsyncTaskClient(client) as tasks:
            await tasks.insert_task(send_mail.new_task(Mail("a", "hi"), task_id="one", due_at=DUE))
        await asyncio.to_thread(send_mail.schedule, Mail("b", "hi"), task_id="two", delay=timedelta(hours=1))

    asyncio.run(use())
    assert client.get("one").due_at == DUE
    assert client.get("two").due_at == NOON + timedelta(hours=1)


# -- the client --------------------------------------------------------------------------------------------------------


def test_without_a_client_the_environment_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Current, "client", None)
    monkeypatch.delenv("DYNATICK_TABLE", raising=False)
    with pytest.raises(ConfigurationError, match="DYNATICK_TABLE"):
        send_mail.schedule(Mail("a", "hi"))
    monkeypatch.setenv("DYNATICK_TABLE", "of-the-environment")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError):
        send_mail.schedule(Mail("a", "hi"))
    assert module._Current.client is not None


def test_a_client_for_the_rest_of_the_process_and_for_a_while() -> None:
    outer, inner = (TaskClient(MemoryStore(), clock=lambda: NOON) for _ in range(2))
    with use_client(outer):
        with use_client(inner):
            send_mail.schedule(Mail("a", "hi"), task_id="one")
        send_mail.schedule(Mail("a", "hi"), task_id="two")
    assert (inner.get("one").task_id, outer.get("two").task_id) == ("one", "two")


# -- the declaration ---------------------------------------------------------------------------------------------------


def test_a_subject_is_derived_from_each_payload(client: TaskClient) -> None:
    @task("send-mail", subject=lambda mail: f"customer:{mail.to}")
    def send(mail: Mail, context: HandlerContext) -> None: ...

    assert send.schedule(Mail("ada", "Hi"), due_at=DUE).subject == "customer:ada"
    assert send.every("rate(1 day)", Mail("bob", "Hi"), schedule_id="daily").row["subject"] == "customer:bob"
    send.schedule_many([Mail("eve", "Hi"), Mail("dan", "Hi")], due_at=DUE)
    assert {one.row["subject"] for one in map(client.get, client.store.listed_by("subject", "customer:eve").ids)} == {
        "customer:eve"
    }
    assert send_mail.schedule(Mail("ada", "Bye"), due_at=DUE).subject is None


def test_a_retry_policy_is_checked_when_it_is_declared() -> None:
    assert task("x", retry_policy=RetryPolicy())(lambda_like).new_task({}).retry_policy == RetryPolicy()
    with pytest.raises(ConfigurationError, match="maximumRetryAttempts"):
        task("x", retry_policy={"maximumRetryAttempts": -1})


def lambda_like(payload: dict[str, object]) -> None: ...


@task("late")
def late(payload: Late) -> None: ...


@dataclass
class Late:
    n: int


def test_the_examples_of_the_page_on_ids_that_are_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "\n".join(
        re.findall(r"^```python\n(.*?)^```$", EXISTING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    )
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    start = datetime(2030, 1, 1, 9, tzinfo=UTC)
    with VirtualInstallation(None, start=start) as installation:
        installation.client = TaskClient(installation.client.store, clock=lambda: installation.now, check_actions=False)
        with use_client(installation.client):
            exec(compile(code, str(EXISTING), "exec"), page.__dict__)
            assert capsys.readouterr().out.splitlines() == re.findall(r"# ((?:created|kept|replaced) .*)$", code, re.M)
    with VirtualInstallation(page, start=start) as installation:
        for minutes in range(8):
            page.changed("ada")
            installation.advance(minutes=9, seconds=min(minutes, 1))
        assert [str(one.at) for one in installation.executed] == ["2030-01-01 10:10:00+00:00"]
        installation.run_due()
        page.changed("ada")
    assert capsys.readouterr().out.splitlines()[-1].startswith("restarted ")
