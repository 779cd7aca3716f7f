"""Raw items as people put them end as they say, at the rule's own ticks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support import STREAM_SECONDS, deployed, eventually, now, room

from dynatick.domain.buckets import instant_of, minute_of
from dynatick_stack.demo.batch import expected, fill
from dynatick_stack.demo.insert import insert
from dynatick_stack.demo.observe import Observer, listed, ticks
from dynatick_stack.demo.verdict import Evidence, unmet

ITEMS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "raw-items.json").read_text("utf-8"))["items"]
# Two ticks, each up to ten seconds late, and a moment for their work.
SECONDS = 2 * 60 + 10 + 30


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    """All items put at once, and how they ended. Nothing but the rule ticks here."""
    with deployed(tmp_path_factory.mktemp("scenarios") / "local", TickMinutes=1) as world:
        room()
        since = now()
        batch = [expected(json.loads(fill(json.dumps(item), now=since))) for item in ITEMS]
        sent = insert(batch, dynamodb=world.dynamodb, table=world.stack.table, client=world.client)
        observer = Observer(
            stack=world.stack, client=world.client, receiver=world.receiver, ids=[one.task_id for one in batch]
        )
        eventually(lambda: not observer.look().counts["unscheduled"], within=STREAM_SECONDS, what="buckets for all")
        settled = minute_of(now())

        def evidence() -> Evidence:
            seen = observer.look()
            return Evidence(
                batch=batch,
                sent=sent,
                seen=seen,
                listed=listed(world.client, instant_of(minute_of(since)), now() + timedelta(minutes=5)),
                ticks=ticks(world.client, since, now()),
                settled=settled,
            )

        def is_over() -> bool:
            latest = evidence()
            # What follows from the last task comes a moment after it.
            letters = len(latest.seen.letters) >= latest.letters_expected
            return not latest.seen.waiting and letters and latest.ticks_complete

        eventually(is_over, within=SECONDS, what=lambda: [*unmet(evidence()), *world.complaints()])
        yield evidence()


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["name"])
def test_an_item_ends_as_it_says(found: Evidence, item: dict[str, Any]) -> None:
    task_id = item["item"]["taskId"]["S"]
    assert [line for line in unmet(found) if line.startswith(f"{task_id} ")] == []


def test_the_sums_are_right(found: Evidence) -> None:
    assert unmet(found) == []
    ends = [item["ends"] for item in ITEMS]
    assert found.count("completed") == ends.count("completed") >= 9
    assert found.count("failed") == ends.count("failed") >= 5
    assert found.seen.waiting == 0
    assert sorted(letter["taskId"] for letter in found.seen.letters) == sorted(
        item["item"]["taskId"]["S"] for item in ITEMS if item["ends"] == "failed"
    )
