"""Times in every notation, hostile payloads, names and targets: refused with a reason, or failed without harm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from botocore.exceptions import ClientError
from tests.faults.conftest import NewWorld
from tests.sandbox.world import World

from dynatick.client import Refused
from dynatick.domain.instants import EPOCH, format_instant, parse_instant
from dynatick.errors import InvalidInput
from dynatick.store.codec import encode
from dynatick_stack.demo.receiver import Receiver

# -- fault 12: times that do not exist are refused; the others run at the first tick that may be. ----------------------

GRID = timedelta(minutes=5)
BERLIN = ZoneInfo("Europe/Berlin")
# Clocks go back at 01:00 UTC: 02:00 to 03:00 in Berlin is there twice.
FOLD = datetime(2026, 10, 25, 0, 21, 10, tzinfo=UTC)
# Clocks go forward at 01:00 UTC: 02:00 to 03:00 in Berlin is not there at all.
GAP = datetime(2027, 3, 28, 0, 21, 10, tzinfo=UTC)

# On the day of the fold: the attribute, its value, and when it is due (None: refused).
AT = "2026-10-25T00:"
TIMES: list[tuple[str, object, str | None]] = [
    ("dueAt", f"{AT}25:00Z", f"{AT}25:00Z"),  # on a tick
    ("dueAt", f"{AT}27:00Z", f"{AT}27:00Z"),  # off the ticks
    ("dueAt", f"{AT}29:59.999Z", f"{AT}29:59.999Z"),
    ("dueAt", f"{AT}31z", f"{AT}31:00Z"),  # without seconds
    ("dueAt", "2026-10-25T02:31:00+02:00", f"{AT}31:00Z"),  # the first 02:31 of that night
    ("dueAt", "2026-10-25T02:31:00+01:00", "2026-10-25T01:31:00Z"),  # the second
    ("dueAt", 1792888260, f"{AT}31:00Z"),
    ("dueAt", "1999-12-31T23:59:59Z", "now"),  # long past
    ("dueAt", f"{AT}21:05Z", "now"),  # within the current minute, and past
    ("dueAt", f"{AT}21:50Z", f"{AT}21:50Z"),  # within the current minute, and to come
    ("taskDateTime", "2026-10-25#00:30", f"{AT}30:00Z"),
    ("taskDateTime", "2026-10-25#00:33", f"{AT}33:00Z"),  # off the ticks
    ("taskDateTime", "2026-10-25#00:20", "now"),  # closed
    ("taskDateTime", f"{AT}33:20Z", f"{AT}33:20Z"),
    ("delaySeconds", 0, "now"),
    ("delaySeconds", 90, f"{AT}22:40Z"),
    ("dueAt", "2026-10-25T00:27:00", None),  # naive
    ("dueAt", "2026-10-25T24:00:00Z", None),
    ("dueAt", "2026-02-31T12:00:00Z", None),
    ("dueAt", "2026-10-25T00:27:60Z", None),  # a leap second
    ("dueAt", "2026-10-25T00:27:00 Europe/Berlin", None),
    ("dueAt", "now", None),
    ("dueAt", 1792888260000, None),  # milliseconds
    ("taskDateTime", "2026-10-25#24:00", None),
    ("delaySeconds", -1, None),
]


def assert_run_in_time(world: World, due: Mapping[str, str], *, failed: int = 0) -> None:
    """Ticks through the night. Each task has run then, at the first tick at or after its time (``now``: insertion)."""
    inserted_at = world.clock()
    while world.clock() < inserted_at.replace(hour=1, minute=36):
        assert world.tick_on_grid(5).what == "returned"
    world.assert_survived(failed=failed)
    executed = {execution.task_id: execution.instant for execution in world.journal.done()}
    assert set(executed) == set(due)
    for task_id, at in executed.items():
        when = EPOCH if due[task_id] == "now" else parse_instant(due[task_id], "when")
        assert when <= at < max(when, inserted_at) + GRID + timedelta(seconds=5), (task_id, at)


def test_fault_12_times_in_raw_rows(new_world: NewWorld) -> None:
    world = new_world(start=FOLD, DYNATICK_TICK_MINUTES="5")
    times = {f"{number:02d} {value}": (name, value, when) for number, (name, value, when) in enumerate(TIMES)}
    for task_id, (name, value, when) in times.items():
        world.put(taskId=task_id, fails=when is None, **{name: value})
    due = {task_id: when for task_id, (_, _, when) in times.items() if when is not None}
    world.deliver_stream()
    failed = {task_id: row for task_id, row in world.rows().items() if "outcome" in row}
    assert failed.keys() == times.keys() - due.keys() == world.dead_letter_ids()
    for row in failed.values():
        assert row["outcome"] == "failed"
        assert "is not accepted" in str(row["error"]) or "no such time" in str(row["error"])
    assert_run_in_time(world, due, failed=len(failed))


@pytest.mark.parametrize("start", [FOLD, GAP], ids=["fold", "gap"])
def test_fault_12_times_by_the_client(new_world: NewWorld, start: datetime) -> None:
    """Datetimes of that night in Berlin, which only the client takes."""
    world = new_world(start=start, DYNATICK_TICK_MINUTES="5")
    night = world.clock().astimezone(BERLIN).replace(hour=2, minute=31, second=0, microsecond=0)
    due = {f"fold-{fold}": night.replace(fold=fold) for fold in (0, 1)}
    for task_id, at in due.items():
        world.insert(task_id, due_at=at)
    with pytest.raises(InvalidInput, match=r"is not accepted"):
        world.client.insert("naive", due_at=night.replace(tzinfo=None))
    assert world.store.get("naive") is None
    assert_run_in_time(world, {task_id: format_instant(at) for task_id, at in due.items()})


# -- fault 22: hostile input -------------------------------------------------------------------------------------------

FORGED = '{"level": "INFO", "action": "forged"}'


def nested(levels: int) -> object:
    value: object = "bottom"
    for _ in range(levels):
        value = [value]
    return value


# Strange, and no business of ours: these run.
HARMLESS: dict[str, dict[str, object]] = {
    "deep": {"x": nested(25)},
    "binary": {"x": b"\x00\xff" * 500, "y": {b"\x00", b"\x01"}},
    "wide": {f"key {n}": n for n in range(2000)},
    "large": {"x": "\u2603" * 100_000},
    "numbers": {"x": Decimal("9" * 38), "y": Decimal("1E-130"), "z": Decimal("-0")},
    "names": {"a.b": 1, "O'Neil": 2, '"; DROP TABLE tasks; --': 3, "#0": 4, ":0": 5, "\u0000": 6, "__proto__": {}},
    "texts": {"x": "${jndi:ldap://127.0.0.1/a}", "y": "{{7*7}}", "z": "%s%n%x", "w": "\u202e\u0000\x1b[2J\ud7ff"},
    "log\n" + FORGED + "\n": {"x": "\n" + FORGED + "\n"},
    "' OR taskId <> '": {},
    '" REMOVE outcome WHERE "taskId"=?': {},
    "../../etc/passwd\u0000": {},
    "\U0001f4a3" * 256: {},  # 1,024 bytes
}
# What our own interfaces refuse: the attribute that is to blame, and the task.
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("taskId", {"task_id": "x" * 1025}),
    ("taskId", {"task_id": "_dynatick#cursor#0"}),
    ("taskId", {"task_id": "\ud800"}),
    ("action", {"action": "no-such-action"}),
    ("action", {"action": "../log"}),
    ("payload", {"payload": {"x": nested(40)}}),
    ("payload", {"payload": {"x": "y" * 400_000}}),
    ("payload", {"payload": {"x": float("nan")}}),
    ("retryPolicy", {"retry_policy": {"maximumRetryAttempts": 10**9}}),
    ("status", {"attributes": {"status": "completed"}}),
]
# What put-item takes, although no task can come of it. DynamoDB Local refuses an id that no index can hold.
IMPOSSIBLE: list[dict[str, Any]] = [
    {"taskId": "full", "payload": {"x": "y" * 409_500}},
    {"taskId": "x" * 2000},
    {"taskId": "unknown", "action": "no-such-action"},
    {"taskId": "action", "action": "a\n" * 5000},
]
# Where a webhook must not go. {port} is a server on this machine's loopback.
INWARD = [
    "http://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "https://localhost:{port}/", "https://localhost.:{port}/",
    "https://[::1]:{port}/", "https://[::ffff:127.0.0.1]:{port}/", "https://[::ffff:7f00:1]:{port}/",
    "https://[64:ff9b::7f00:1]:{port}/", "https://127.1:{port}/", "https://2130706433:{port}/",
    "https://0x7f000001:{port}/", "https://0177.0.0.1:{port}/", "https://0:{port}/", "https://0.0.0.0:{port}/",
    "https://[::]:{port}/", "https://user:secret@127.0.0.1:{port}/", "https://example.com@127.0.0.1:{port}/",
    "https://169.254.169.254/latest/meta-data/", "https://[fd00:ec2::254]/", "https://10.0.0.1/", "https://192.168.1.1/",
    "https://172.16.0.1/", "https://100.64.0.1/", "https://224.0.0.1/", "https://255.255.255.255/",
    "ftp://127.0.0.1:{port}/", "file:///etc/passwd", "gopher://127.0.0.1:{port}/_x", "data:text/plain,x",
    "//127.0.0.1:{port}/", "https:127.0.0.1:{port}", "https://127.0.0.1\\@example.com/", "https://127.0.0.1:{port}\t/",
    "https://127。0。0。1:{port}/", "https://127.0.0.1:99999/", "https:///", "", "x" * 5000,
]  # fmt: skip


def test_fault_22_hostile_payloads_and_names(world: World) -> None:
    for number, (task_id, payload) in enumerate(HARMLESS.items()):
        world.insert(f"{number % 10}{task_id[:-1]}", delay_seconds=30, payload=payload)
        world.put(taskId=task_id, delaySeconds=30, payload=payload)
    for name, values in REFUSED:
        with pytest.raises(InvalidInput) as refused:
            world.client.insert(**{"task_id": "refused", "delay_seconds": 30, **values})
        assert refused.value.field.split(".")[0].split("[")[0] == name, refused.value
        assert len(str(refused.value)) < 600
    assert world.store.get("refused") is None
    for row in IMPOSSIBLE:
        try:
            world.put(**row, delaySeconds=30, fails=True)
        except ClientError as error:
            assert "Size limit exceeded" in str(error) and len(row["taskId"]) == 2000, error

    world.next_tick()
    world.finish()
    rows = world.rows()
    failed = {task_id for task_id, row in rows.items() if row["outcome"] == "failed"}
    assert failed == world.inserted & {row["taskId"] for row in IMPOSSIBLE} == world.dead_letter_ids()
    assert all(0 < len(str(rows[task_id]["error"])) <= 300 for task_id in failed)
    forged = [line for line in world.log.read_text(errors="replace").splitlines() if line == FORGED]
    assert not forged, "a payload or a name has written a line of its own into the log"
    world.assert_survived(executed=2 * len(HARMLESS), failed=len(failed))


def has_secrets(text: object) -> bool:
    return "s3cr3t" in str(text) or "secret@" in str(text)


def test_fault_22_webhooks_that_point_inward(new_world: NewWorld) -> None:
    world = new_world()  # without private hosts, as on AWS
    urls = {f"t{number:02d}": url for number, url in enumerate(INWARD)}
    refused: list[str] = []
    with Receiver() as receiver:
        for task_id, url in urls.items():
            payload = {"url": url.format(port=receiver.url.rpartition(":")[2]), "data": {"secret": "s3cr3t"}}
            task = {"taskId": task_id, "delaySeconds": 30, "action": "webhook", "payload": payload,
                    "retryPolicy": {"maximumRetryAttempts": 0}}  # fmt: skip
            (answered,) = world.client.insert_lazily([task])
            if isinstance(answered, Refused):  # as a row then, which the processor must not trust either
                refused.append(url)
                assert "payload.url" in str(answered.error), url
                assert not has_secrets(answered.error)
                world.dynamodb.put_item(TableName=world.table, Item=encode(task))
            world.note_inserts([task], fails=True)
        world.insert_soon(f"healthy-{n}" for n in range(50))
        world.next_tick()
        world.assert_survived(executed=50, failed=len(INWARD))
        assert receiver.calls == []
    assert "https://user:secret@127.0.0.1:{port}/" in refused
    rows = world.rows()
    for task_id, url in urls.items():
        assert rows[task_id]["error"] and not has_secrets(rows[task_id]["error"]), url
    assert world.dead_letter_ids() == set(urls)
    assert not has_secrets(json.dumps([letter["error"] for letter in world.dead_letters()]))
