"""The target answers 4xx or 5xx, late, or hangs up: a failure, tried again as the policy says, and never a success."""

from __future__ import annotations

import socket
import time
from collections import Counter

from tests.builders import key_of
from tests.faults.conftest import NewWorld, Report
from tests.unit.actions.support import a_rude_server

from dynatick_stack.demo.receiver import Call, Receiver

EACH = 5
POLICY = {"retryPolicy": {"maximumRetryAttempts": 2, "minBackoffSeconds": 0}}
# By path: the status of each call with the same key in turn, the last one from then on.
ANSWERS = {
    "ok": [204],
    "made": [201],
    "bad": [400],
    "unknown": [404],
    "gone": [410],
    "moved": [302],
    "early-once": [425, 200],
    "busy-once": [429, 200],
    "broken-once": [500, 200],
    "away-twice": [503, 502, 200],
    "broken": [500],
    "away": [504],
    "late-once": [-1, 200],  # no answer in time
    "late": [-1],
}
TRIES = {"bad": 1, "unknown": 1, "gone": 1, "moved": 1, "broken": 3, "away": 3, "late": 3}  # without success


def test_fault_14_targets_that_fail(new_world: NewWorld, report: Report) -> None:
    answered: list[tuple[str, str, str, int]] = []  # (task id, key, attempt, status)

    def answer(call: Call, earlier: int) -> int:
        statuses = ANSWERS[call.path.split("/")[1]]
        status = statuses[min(earlier, len(statuses) - 1)]
        answered.append((call.task_id, call.key, call.attempt, status))
        if status < 0:
            time.sleep(3)
            return 200  # too late to be heard
        return status

    closed = socket.create_server(("127.0.0.1", 0))
    nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    closed.close()
    with Receiver(answer) as receiver, a_rude_server(lambda connection: None) as rude:  # which closes at once
        world = new_world(DYNATICK_WEBHOOK_PRIVATE_HOSTS="127.0.0.1")
        urls = {name: f"{receiver.url}/{name}" for name in ANSWERS} | {"rude": rude, "nobody": nobody}
        for name, url in urls.items():
            world.insert_many(
                [
                    {"taskId": f"{name}-{n}", "delaySeconds": 30, "action": "webhook", **POLICY,
                     "payload": {"url": url, "data": {"n": n}, "timeoutSeconds": 1.5 if "late" in name else 5}}
                    for n in range(EACH)
                ],
                fails=name in TRIES or name not in ANSWERS,
            )  # fmt: skip
        world.next_tick()
        world.finish()

    rows = world.rows()
    attempts = Counter(task_id for task_id, *_ in answered)
    for name in urls:
        for task_id in (f"{name}-{n}" for n in range(EACH)):
            row, succeeds = rows[task_id], name not in TRIES and name in ANSWERS
            assert row["outcome"] == ("completed" if succeeds else "failed"), row
            assert row["attempt"] == (len(ANSWERS[name]) if succeeds else TRIES.get(name, 3)), row
            assert attempts[task_id] == (row["attempt"] if name in ANSWERS else 0)
            assert succeeds or row["error"]
    assert all(key == key_of(rows[task_id]) for task_id, key, _, _ in answered)
    assert {(task_id, attempt) for task_id, _, attempt, _ in answered} == {
        (task_id, str(number)) for task_id, times in attempts.items() for number in range(1, times + 1)
    }
    succeeded = {task_id for task_id, _, _, status in answered if 200 <= status < 300}
    failed = {task_id for task_id, row in rows.items() if row["outcome"] == "failed"}
    assert {letter["taskId"] for letter in world.letters()} == failed
    figures = report(world, elsewhere=succeeded)
    assert figures.executed == len(succeeded) == EACH * (len(ANSWERS) - len(TRIES))
    assert figures.otherwise == {"failed": len(failed)}
