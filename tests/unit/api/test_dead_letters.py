"""Dead letters over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest
from tests.builders import InProcess
from tests.unit.api.support import Caller
from tests.unit.client.support import fail

from dynatick.actions.dead_letter_queue import Message
from dynatick.api import Api
from dynatick.client import dead_letters
from dynatick.errors import QueueError

PATH = "/v1/dead-letters"


@pytest.fixture
def world(caller: Caller) -> InProcess:
    """The tasks a and b have failed; a was redriven since."""
    world = InProcess(store=caller.store, clock=caller.clock, dead_letters=caller.dead_letters)
    world.tick()
    for name in "ab":
        world.actions.behaviour[name] = fail
        caller.client.insert(name, delay_seconds=1)
        world.next_tick()
    caller.client.redrive("a")
    return world


def test_the_list(caller: Caller, world: InProcess) -> None:
    answer = caller.ask("GET", PATH)
    assert (answer["complete"], answer["messages"], answer["hidden"]) == (True, 2, 0)
    assert [(one["taskId"], one["state"], one["taskStatus"]) for one in answer["deadLetters"]] == [
        ("a", "redriven", "scheduled"), ("b", "failed", "failed"),
    ]  # fmt: skip
    assert answer["deadLetters"][1]["failedAt"] == world.row("b")["finishedAt"]
    assert not caller.ask("GET", PATH, query="limit=1")["complete"]
    assert len(caller.dead_letters.visible) == 2


def test_redrive(caller: Caller, world: InProcess) -> None:
    dry = caller.ask("POST", f"{PATH}/redrive", {"dryRun": True})
    assert (dry["counts"], dry["more"], world.outcome("b")) == ({"dropped": 1, "redriven": 1}, False, "failed")
    first = caller.ask("POST", f"{PATH}/redrive", {"limit": 1})
    assert (first["counts"], first["more"]) == ({"dropped": 1}, True)
    rest = caller.ask("POST", f"{PATH}/redrive", {"action": "log", "error": "broke"})
    assert [(one["taskId"], one["result"], one["state"]) for one in rest["results"]] == [("b", "redriven", "failed")]
    assert (world.row("b")["run"], caller.dead_letters.visible, rest["more"]) == (2, [], False)
    bucket = caller.ask("GET", "/v1/buckets/2026-12-31%2312:02")
    assert (bucket["left"], bucket["ran"], bucket["failed"], bucket["total"]) == ({"redrivenFailed": 1}, 1, 1, 0)
    assert "left" not in caller.ask("GET", "/v1/buckets/2026-12-31%2312:09")
    (record,) = caller.client.operations.changes.list()
    assert (record.change, record.changed, record.interface) == ("redrive dead letters", 1, "HTTP")
    assert record.given == {"action": "log", "error": "broke", "limit": "1000"}


def test_whoever_repeats_a_redrive_while_there_is_more_redrives_each_task_once(
    caller: Caller, world: InProcess
) -> None:
    """Meanwhile those that were redriven have failed again."""
    world.next_tick()  # a again
    asked: dict[str, object] = {"limit": 2}
    counts = []
    while len(counts) < 9:
        answer = caller.ask("POST", f"{PATH}/redrive", asked)
        counts.append(answer["counts"])
        if not answer["more"]:
            break
        world.next_tick()
        asked["began"] = answer["began"]
    assert counts == [{"dropped": 1, "redriven": 1}, {"redriven": 1}]
    world.next_tick()
    assert [world.row(name)["run"] for name in "ab"] == [3, 2]
    assert caller.refused_fields("POST", f"{PATH}/redrive", {"began": "noon"}) == ["#/began"]
    assert "began" not in caller.ask("POST", f"{PATH}/purge", {})


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_a_request_that_has_read_its_fill_and_handled_nothing_is_not_to_be_repeated(
    caller: Caller, world: InProcess, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_HIDDEN", 20)
    for n in range(40):
        caller.dead_letters.put(f"no letter {n}")
    answers = [caller.ask("POST", f"{PATH}/{verb}", {"action": "log", "limit": 1}) for _ in range(2)]
    assert [(sum(one["counts"].values()), one["more"]) for one in answers] == [(1, True), (0, False)]
    assert [one["complete"] for one in answers] == [False, False], "there may be more"


def test_no_more_letters_that_are_kept_are_listed_than_the_limit(caller: Caller, world: InProcess) -> None:
    for n in range(5):
        caller.dead_letters.put(f"no letter {n}")
    answer = caller.ask("POST", f"{PATH}/redrive", {"limit": 3})
    assert (answer["counts"], answer["more"]) == ({"dropped": 1, "redriven": 1, "kept": 5}, False)
    assert [one["result"] for one in answer["results"]] == ["dropped", "kept", "redriven"]


def test_purge_of_obsolete_ones_of_all_and_of_what_a_redrive_keeps(caller: Caller, world: InProcess) -> None:
    assert caller.ask("POST", f"{PATH}/purge", {"obsolete": True})["counts"] == {"dropped": 1}
    assert caller.ask("POST", f"{PATH}/purge", {})["counts"] == {"purged": 1}
    assert (world.outcome("b"), caller.dead_letters.visible) == ("failed", [])
    caller.dead_letters.put("hello")
    (one,) = caller.ask("POST", f"{PATH}/redrive", {})["results"]
    assert one == {"state": "unreadable", "result": "kept", "detail": one["detail"]}
    assert "purge deletes it" in one["detail"]


def test_it_answers_before_the_gateway_gives_up(caller: Caller) -> None:
    caller.api = Api(caller.client, seconds=map(float, count(0, 10)).__next__)
    for n in range(50):
        caller.dead_letters.put(f"no letter {n}")
    assert len(caller.ask("GET", PATH)["deadLetters"]) == 10
    assert caller.ask("POST", f"{PATH}/purge", {})["more"]


def test_a_queue_that_does_not_answer_and_an_api_without_one(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def receive() -> Sequence[Message]:
        raise QueueError("cannot read the dead-letter queue: https://sqs.secret")

    monkeypatch.setattr(caller.dead_letters, "receive", receive)
    for method, path, body in (("GET", PATH, None), ("POST", f"{PATH}/redrive", {}), ("POST", f"{PATH}/purge", {})):
        problem = caller.refused("unavailable", method, path, body)
        assert problem["detail"] == "the dead-letter queue did not answer. Repeat the request"
    caller.client.dead_letter_queue = None
    caller.api = Api(caller.client)
    assert caller.refused("no-dead-letter-queue", "GET", PATH)["status"] == 404
