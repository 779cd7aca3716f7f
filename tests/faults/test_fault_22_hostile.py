"""Hostile input: payloads, names, targets, actions. Refused with a reason by the interface, or failed without harm."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import World

from dynatick.client import Refused
from dynatick.errors import InvalidInput
from dynatick.store.codec import encode
from dynatick_stack.demo.receiver import Receiver

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


def test_fault_22_hostile_payloads_and_names(world: World, report: Report) -> None:
    for number, (task_id, payload) in enumerate(HARMLESS.items()):
        world.insert(f"{number % 10}{task_id[:-1]}", delay_seconds=30, payload=payload)
        world.put(taskId=task_id, delaySeconds=30, payload=payload)
    for name, values in REFUSED:
        with pytest.raises(InvalidInput) as refused:
            world.client.insert(**{"task_id": "refused", "delay_seconds": 30, **values})
        assert refused.value.field.split(".")[0].split("[")[0] == name, refused.value
        assert len(str(refused.value)) < 600
    assert world.store.get("refused") is None

    # What put-item takes, although no task can come of it.
    world.put(taskId="full", delaySeconds=30, payload={"x": "y" * 409_500}, fails=True)
    long_ids = {"x" * 2000} if world.takes_long_ids() else set()
    for task_id in long_ids:
        world.put(taskId=task_id, delaySeconds=30, fails=True)
    world.put(taskId="unknown", delaySeconds=30, action="no-such-action", fails=True)
    world.put(taskId="action", delaySeconds=30, action="a\n" * 5000, fails=True)
    world.next_tick()
    world.finish()
    rows = world.rows()
    failed = {task_id for task_id, row in rows.items() if row["outcome"] == "failed"}
    assert failed == {"full", "unknown", "action"} | long_ids
    assert all(0 < len(str(rows[task_id]["error"])) <= 300 for task_id in failed)
    assert {letter["taskId"] for letter in world.letters()} == failed
    forged = [line for line in (world.folder / "log").read_text(errors="replace").splitlines() if line == FORGED]
    assert not forged, "a payload or a name has written a line of its own into the log"
    figures = report(world)
    assert figures.executed == 2 * len(HARMLESS)
    assert figures.otherwise == {"failed": len(failed)}


def test_fault_22_webhooks_that_point_inward(new_world: NewWorld, report: Report) -> None:
    world = new_world()  # without private hosts, as on AWS
    refused: list[str] = []
    with Receiver() as receiver:
        port = receiver.url.rpartition(":")[2]
        for number, url in enumerate(INWARD):
            task = {
                "taskId": f"t{number:02d}",
                "delaySeconds": 30,
                "action": "webhook",
                "payload": {"url": url.format(port=port), "data": {"secret": "s3cr3t"}},
                "retryPolicy": {"maximumRetryAttempts": 0},
            }
            (answered,) = world.client.insert_lazily([task])
            if isinstance(answered, Refused):  # as a row then, which the processor must not trust either
                refused.append(url)
                assert "payload.url" in str(answered.error), url
                assert "s3cr3t" not in str(answered.error)
                assert "secret@" not in str(answered.error)
                world.dynamodb.put_item(TableName=world.table, Item=encode(task))
            world.note_inserts([task], fails=True)
        world.insert_many([{"taskId": f"healthy-{n}", "delaySeconds": 30} for n in range(50)])
        world.next_tick()
        world.finish()
        assert receiver.calls == []
    assert "https://user:secret@127.0.0.1:{port}/" in refused
    rows = world.rows()
    for number, url in enumerate(INWARD):
        row = rows[f"t{number:02d}"]
        assert row["outcome"] == "failed", (url, row)
        assert row["error"], url
        assert "s3cr3t" not in str(row["error"])
        assert "secret@" not in str(row["error"])
    letters = world.letters()
    assert {letter["taskId"] for letter in letters} == {f"t{n:02d}" for n in range(len(INWARD))}
    assert "s3cr3t" not in json.dumps([letter["error"] for letter in letters])
    figures = report(world)
    assert figures.executed == 50
    assert figures.otherwise == {"failed": len(INWARD)}
