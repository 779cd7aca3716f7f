"""Installations for the pages, whose tasks and ticks the real engine has made, on a fixed day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from random import Random

from tests.ui import handlers
from tests.ui.clock import NOW, clock_at
from tests.ui.installation import Installation

from dynatick import NewTask
from dynatick.client.failures import fingerprint_of
from dynatick.domain.task import Row
from dynatick.store.codec import decode
from dynatick.testing.table import Table

MINUTE = timedelta(minutes=1)
NIGHT = NOW.replace(hour=2, minute=0, second=0)  # in which things fail
OUTAGE = (NOW.replace(hour=3, minute=35, second=0), NOW.replace(hour=3, minute=47, second=0))  # no ticks
NOON = NOW.replace(hour=12, minute=0, second=0)

NO_MAILBOX = 12  # tasks that fail for want of a mailbox, in the night
BANK_DOWN = 4  # and for a bank that does not answer: they succeed when they are redriven in the morning
BANK_DOWN_FINGERPRINT = fingerprint_of("the bank answered 503")
NEGATIVE = 2  # charges of less than nothing, each with other numbers in its error

SCRIPT = "<script>window.hacked = true</script>"
HOSTILE_ID = "<img src=x onerror='window.hacked=true'> \"quoted\" & 50% off/?#tag ünïcode"
LONG_ID = "long-" + "0123456789" * 100  # 1,005 bytes of the 1,024 that an id may have
HUGE_ID = "huge-payload"
HUGE_BYTES = 300_000
WAITS_FOR_RETRY = "charge-order-7001"
MISSED_OCCURRENCE = "probe#1#2027-03-24T03:43:00Z"  # in the outage, and not made up for
LUNCH = "lunch-menu"  # a schedule with an occurrence at noon
ENDED_BATCH, BATCH = "new-year/2027", "spring/2027"  # on the day before, and in the evening
RUNNING_ID = "yearly-report"
WAITING = "transcode-keynote"  # for a completion, until noon


@dataclass(frozen=True, slots=True)
class Seed:
    """The rows of a table as they are at NOW."""

    rows: list[Row]


@cache
def empty() -> Seed:
    """An installation that has ticked for an hour and has no task."""
    return _seed(timedelta(hours=1), lambda installation: None)


@cache
def small() -> Seed:
    """Makes an installation with one of everything, over 30 hours."""
    return _seed(timedelta(hours=30), _small, without=OUTAGE, late=_late)


@cache
def pictured() -> Seed:
    """The same for the pictures of the documentation, without what no installation should have."""
    return _seed(timedelta(hours=30), lambda one: _small(one, odd=False), without=OUTAGE, late=_late)


@cache
def large(tasks: int = 100_000) -> Seed:
    """Many tasks: three fifths in the past 24 hours, the others in the next 24."""
    return _seed(timedelta(hours=24, minutes=5), lambda installation: _large(installation, tasks))


def _seed(
    history: timedelta,
    fill: Callable[[Installation], None],
    *,
    without: tuple[datetime, datetime] | None = None,
    late: Callable[[datetime], float] = lambda at: 0.4,
) -> Seed:
    """Ticks from ``history`` before the present to it. ``without``: from when until when no tick comes. If a task of
    the last tick pauses, the rows are those of that moment: it runs."""
    first = (NOW - history).replace(second=0, microsecond=0)
    table = Table(lambda task_id, row: None)
    found: list[list[Row]] = []

    def rows() -> list[Row]:
        return [decode(item) for item in table._items.values()]

    handlers.while_running = lambda: found.append(rows())
    installation = Installation(table, clock_at(first))
    installation.tick(first)
    fill(installation)
    at = first + MINUTE
    while at <= NOW:
        if without is None or not without[0] <= at < without[1]:
            installation.tick(at, late_seconds=late(at))
        at += MINUTE
    assert installation.clock() <= NOW, "the last tick ended after the present"
    return Seed(found[0] if found else rows())


def _late(at: datetime) -> float:
    """Most ticks come at once, a few do not."""
    random = Random(at.isoformat())
    return random.choice((6.0, 21.0)) if random.random() < 0.01 else 0.1 + random.random() * 0.5


# -- small -------------------------------------------------------------------------------------------------------------


def _small(installation: Installation, *, odd: bool = True) -> None:
    client = installation.client
    schedules = client.schedules
    mail = {"to": "team@example.com", "text": "Stand-up"}
    schedules.insert(
        "standup", "cron(0 9 ? * MON-FRI *)", timezone="Europe/Berlin", action="send-reminder", payload=mail
    )
    schedules.insert(LUNCH, "cron(0 12 * * ? *)", action="send-reminder", payload=mail)
    schedules.insert("hourly-report", "rate(1 hour)", action="build-report", payload={"seconds": 2.5})
    schedules.insert("probe", "rate(5 minutes)", action="log", payload={"message": "alive"}, catch_up="none")
    # Its hour does not exist on the Sunday after the present.
    schedules.insert("backup", "cron(30 2 * * ? *)", timezone="Europe/Berlin", action="build-report", payload={})
    schedules.insert("digest", "rate(1 day)", action="send-reminder", payload=mail)
    schedules.pause("digest", "until the new design is there")
    assert client.insert_many(_small_tasks(installation.clock())).inserted
    if odd:
        assert client.insert_many(_odd_tasks()).inserted
    client.batches.insert(
        [mail] * 3, batch_id=ENDED_BATCH, action="send-reminder", due_at=installation.clock() + 5 * MINUTE
    )
    client.batches.insert(
        [mail] * 600, batch_id=BATCH, action="send-reminder", due_at=NOW + timedelta(hours=10), over="1h",
        then={"action": "build-report", "payload": {}},
    )  # fmt: skip
    for name in ("old-campaign-1", "old-campaign-2", "old-campaign-3"):
        client.cancel(name)


def _mail(task_id: str, due_at: datetime | str, to: str, text: str | None = None) -> NewTask:
    payload = {"to": to} if text is None else {"to": to, "text": text}
    return NewTask(task_id=task_id, due_at=due_at, action="send-reminder", payload=payload)


def _charge(order: int, due_at: datetime, cents: int, down_until: str | None = None, **policy: int) -> NewTask:
    payload: dict[str, object] = {"order": str(order), "cents": cents}
    if down_until is not None:
        payload["down_until"] = f"2027-03-24T{down_until}:00+00:00"
    return NewTask(
        task_id=f"charge-order-{order}", due_at=due_at, action="charge-card", payload=payload,
        retry_policy=policy or None,  # type: ignore[arg-type]
    )  # fmt: skip


def _small_tasks(first: datetime) -> Iterator[NewTask]:
    random = Random(1)
    for number in range(240):  # through the whole history, and a day ahead
        at = first + timedelta(minutes=10 + number * 13, seconds=random.randrange(60))
        yield _mail(f"reminder-{number:03}", at, f"user{number}@example.com")
    for number in range(NO_MAILBOX):
        at = NIGHT + timedelta(minutes=5 * number)
        yield _mail(f"invoice-mail-{number:02}", at, f"user{number}@nowhere.invalid", "Your invoice is ready")
    for number in range(BANK_DOWN):
        at = NIGHT + timedelta(minutes=40 + number)
        yield _charge(4001 + number, at, 995, "05:00", maximumRetryAttempts=1, minBackoffSeconds=60)
    for number in range(NEGATIVE):
        yield _charge(5001 + number, NIGHT + timedelta(hours=1, minutes=number), -5 - number)
    yield _charge(7001, NOW - 3 * MINUTE, 1299, "09:15", maximumRetryAttempts=5, minBackoffSeconds=600)
    for number in range(1, 4):
        yield _mail(f"old-campaign-{number}", NOW + timedelta(hours=number), "a@example.com")
    for number in range(3):
        yield _mail(f"table-{number}", NOON, f"guest{number}@example.com", "Your table is ready")
    video = {"key": "keynote.mov"}
    yield NewTask(task_id=WAITING, due_at=NOW - 70 * MINUTE, action="transcode", payload=video)
    yield _mail("new-year", "2028-01-01T00:00:00+01:00", "b@example.com")
    # The last tick claims it, and is still at work on it.
    running = {"seconds": 5, "pauses": True}
    yield NewTask(task_id=RUNNING_ID, due_at=NOW - timedelta(seconds=50), action="build-report", payload=running)


def _odd_tasks() -> Iterator[NewTask]:
    hostile = {"error": f"cannot read {SCRIPT}", "text": f"</pre>{SCRIPT}", "<b>bold</b>": ["&amp;", "'\""]}
    yield NewTask(task_id=HOSTILE_ID, due_at=NIGHT + 70 * MINUTE, action="build-report", payload=hostile)
    yield NewTask(task_id=LONG_ID, due_at=NOON + MINUTE, action="build-report", payload={})
    yield NewTask(task_id=HUGE_ID, due_at=NOON + 2 * MINUTE, action="build-report", payload={"text": "x" * HUGE_BYTES})


# -- large -------------------------------------------------------------------------------------------------------------


def _large(installation: Installation, tasks: int) -> None:
    client, clock = installation.client, installation.clock
    for number in range(200):
        expression, mail = f"rate({5 + number} minutes)", {"to": "a@example.com"}
        client.schedules.insert(f"schedule-{number:03}", expression, action="send-reminder", payload=mail)
    result = client.insert_many(_large_tasks(clock(), tasks))
    assert result.inserted == tasks, result


def _large_tasks(first: datetime, tasks: int) -> Iterator[NewTask]:
    random = Random(2)
    past, at_noon = tasks * 3 // 5, tasks // 20
    for number in range(tasks):
        if number < past:
            at = first + timedelta(minutes=3, seconds=random.randrange(24 * 3600 - 60))
        elif number < past + at_noon:
            at = NOON
        else:
            at = NOW + timedelta(seconds=120 + random.randrange(24 * 3600))
        if number < past and number % 30 == 0:  # each with an error text of its own
            payload = {"order": str(number), "cents": -1 - number}
            yield NewTask(task_id=f"task-{number:06}", due_at=at, action="charge-card", payload=payload)
        else:
            domain = "nowhere.invalid" if number < past and number % 31 == 0 else "example.com"
            yield _mail(f"task-{number:06}", at, f"user{number}@{domain}")
