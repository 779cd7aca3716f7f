"""What is there for one customer: tasks and schedules found, changed, exported and deleted by their subject."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.client.support import client_of, each_state, started, world_of
from tests.unit.engine.support import World

from dynatick import InvalidInput, StoreError, TaskClient
from dynatick.client import Changed, ChangeUnknown, ManyResult, Skipped, WouldChange
from dynatick.engine.ports import Listing

ADA = "customer:ada"
LATER = "2027-03-01T12:00:00Z"


@pytest.fixture
def world() -> World:
    """After noon: of Ada a task that has completed, some that wait, one that runs, and a schedule; and one of Bob."""
    world = world_of(shard_count=4)
    client = client_of(world)
    client.insert("done", delay_seconds=1, subject=ADA)
    client.insert("runs", delay_seconds=90, subject=ADA)
    world.next_tick()
    for n in range(3):
        client.insert(f"mail-{n}", due_at=LATER, subject=ADA, payload={"n": n})
    client.insert("bobs", due_at=LATER, subject="customer:bob")
    client.schedules.insert("weekly", "rate(7 days)", subject=ADA)
    started(world, "runs")
    return world


def by_result(results: Iterable[ManyResult]) -> dict[type[ManyResult], list[str]]:
    found: dict[type[ManyResult], list[str]] = {}
    for result in results:
        found.setdefault(type(result), []).append(result.task_id)
    return found


def test_the_tasks_of_a_subject_are_listed_wherever_they_are(client: TaskClient) -> None:
    page = client.history(subject=ADA)
    assert [(one.task_id, one.status) for one in page.entries] == [
        ("done", "completed"), ("mail-0", "scheduled"), ("mail-1", "scheduled"), ("mail-2", "scheduled"),
        ("runs", "running"),
    ]  # fmt: skip
    assert page.next_page_token is None
    entry = page.entries[1]
    assert (entry.bucket.partition("#")[0], entry.action, entry.attempt) == ("2027-03-01", "log", 0)
    assert client.history(subject="customer:").entries == (), "the whole subject is its name"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"status": "scheduled"}, ["mail-0", "mail-1", "mail-2"]), ({"status": "completed"}, ["done"]),
        ({"prefix": "mail-"}, ["mail-0", "mail-1", "mail-2"]), ({"action": "webhook"}, []),
        ({"start": "2026-12-31T00:00:00Z", "end": "2027-01-01T00:00:00Z"}, ["done", "runs"]),
    ],
)  # fmt: skip
def test_filters_and_a_range_narrow_it(client: TaskClient, filters: dict[str, str], found: list[str]) -> None:
    assert [one.task_id for one in client.history(subject=ADA, **filters).entries] == found  # type: ignore[arg-type]
    assert [row["taskId"] for row in client.export(subject=ADA, **filters)] == found  # type: ignore[arg-type]


def test_page_by_page(client: TaskClient) -> None:
    found, token = [], None
    while True:
        page = client.history(subject=ADA, limit=2, page_token=token)
        found += [one.task_id for one in page.entries]
        if (token := page.next_page_token) is None:
            break
        assert len(page.entries) == 2
        with pytest.raises(InvalidInput, match="the token of the page before"):
            client.history("2026-12-31#12:00", page_token=token)
    assert found == ["done", "mail-0", "mail-1", "mail-2", "runs"]
    of_bucket = client.history(start="2026-12-31T12:00:00Z", end="2027-01-01T00:00:00Z", limit=1).next_page_token
    with pytest.raises(InvalidInput, match="the token of the page before"):
        client.history(subject=ADA, page_token=of_bucket)
    again = client.export(subject=ADA, after=("2027-03-01#12:00", "mail-0"))
    assert [row["taskId"] for row in again] == ["mail-1", "mail-2", "runs"]


def test_it_counts_by_bucket(client: TaskClient) -> None:
    assert [(one.bucket, dict(one.counts)) for one in client.bucket_counts(subject=ADA)] == [
        ("2026-12-31#12:01", {"completed": 1}), ("2026-12-31#12:02", {"running": 1}),
        ("2027-03-01#12:00", {"scheduled": 3}),
    ]  # fmt: skip


def test_one_that_has_no_place_yet_is_found(world: World, client: TaskClient) -> None:
    world.store.create({"taskId": "new", "subject": ADA, "action": "log"})
    (entry,) = client.history(subject=ADA, status="unscheduled").entries
    assert (entry.task_id, entry.bucket, "taskDateTime" in entry.to_row()) == ("new", "", False)
    assert by_result(client.cancel_many(subject=ADA, prefix="new")) == {Changed: ["new"]}


def test_those_that_wait_are_cancelled_in_one_call(client: TaskClient) -> None:
    waiting = ["mail-0", "mail-1", "mail-2"]
    assert by_result(client.cancel_many(subject=ADA, dry_run=True)) == {WouldChange: waiting}
    assert by_result(client.cancel_many(subject=ADA)) == {Changed: waiting}
    assert {one.status for one in client.history(subject=ADA, prefix="mail-").entries} == {"cancelled"}
    assert client.get("bobs").status == "scheduled"
    assert by_result(client.cancel_many(subject=ADA)) == {}


def test_a_customer_leaves(world: World, client: TaskClient) -> None:
    """Schedules first, so that none makes another task; what runs is said, and stays until it has ended."""
    deleted = ["weekly", "done", "mail-0", "mail-1", "mail-2"]
    preview, done = by_result(client.delete_many(subject=ADA, dry_run=True)), by_result(client.delete_many(subject=ADA))
    assert preview == {WouldChange: deleted, Skipped: ["runs"]}
    assert done == {Changed: deleted, Skipped: ["runs"]}
    assert world.store.listed_by("subject", ADA).ids == ["runs"]
    assert client.get("bobs").subject == "customer:bob"


def test_a_batch_goes_with_its_members_and_their_payloads(world: World, client: TaskClient) -> None:
    then = {"action": "log", "payload": {"iban": "DE02"}}
    for subject in ("customer:zoe", "customer:bob"):
        payloads = [{"iban": "DE02"}] * 501
        client.batches.insert(payloads, batch_id=subject[9:], action="log", due_at=LATER, then=then, subject=subject)
    client.run_now("zoe/000000000")
    ids = ["zoe", "zoe/000000000", "zoe/000000000-000000499", "zoe/000000500-000000500"]
    assert by_result(client.delete_many(subject="customer:zoe", dry_run=True)) == {WouldChange: ids}
    assert by_result(client.delete_many(subject="customer:zoe")) == {Changed: ids}
    left = [str(row["taskId"]) for row in world.store.scan(open_only=False).rows]
    assert [one for one in left if "zoe" in one] == []
    assert len([one for one in left if one.startswith(("bob/", "_dynatick#pack#bob/"))]) == 4
    (skipped, *_) = client.delete_many(subject="customer:bob", status="scheduled")
    assert isinstance(skipped, Skipped) and "it is a batch; cancel it with its members" in skipped.reason


def test_payloads_that_may_be_left_are_named(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.batches.insert([{}], batch_id="news", action="log", due_at=LATER, subject="customer:zoe")
    delete = world.store.delete

    def fails_for_payloads(task_id: str, conditions: Any = ()) -> bool:
        if task_id.startswith("_dynatick#pack#"):
            raise StoreError("no answer")
        return delete(task_id, conditions)

    monkeypatch.setattr(world.store, "delete", fails_for_payloads)
    batch, pack = client.delete_many(subject="customer:zoe")
    assert isinstance(batch, Changed) and isinstance(pack, ChangeUnknown)
    said = "and its payloads in '_dynatick#pack#news/000000000-000000000' perhaps not: no answer"
    assert str(pack.error) == f"deleted 'news/000000000-000000000', {said}"


def test_schedules_stay_if_more_than_the_subject_is_asked_for(client: TaskClient) -> None:
    assert by_result(client.delete_many(subject=ADA, status="scheduled"))[Changed] == ["mail-0", "mail-1", "mail-2"]
    assert client.schedules.get("weekly").row["subject"] == ADA


def test_no_more_are_deleted_than_the_limit_and_none_that_no_longer_matches() -> None:
    world = each_state()
    client = client_of(world)
    (result,) = client.delete_many("2026-12-31#12:01", limit=1)
    assert isinstance(result, Changed)
    statuses = {one.task_id: one.status for one in client.history("2026-12-31#12:01").entries}
    assert result.task_id not in statuses
    deletion = client.delete_many("2026-12-31#12:01", status="failed")
    client.redrive("failed")
    assert list(deletion) == [] and client.get("failed").status == "scheduled"


def test_a_limit_counts_schedules_too_and_nothing_is_deleted_that_is_not_reported(
    world: World, client: TaskClient
) -> None:
    assert by_result(client.delete_many(subject=ADA, limit=2)) == {Changed: ["weekly", "done"]}
    assert world.store.listed_by("subject", ADA).ids == ["mail-0", "mail-1", "mail-2", "runs"]
    client.schedules.insert("daily", "rate(1 day)", subject=ADA)
    assert by_result(client.delete_many(subject=ADA, limit=1)) == {Changed: ["daily"]}
    assert len(world.store.listed_by("subject", ADA).ids) == 4


def test_the_schedules_of_a_subject(client: TaskClient) -> None:
    client.schedules.insert("daily", "rate(1 day)", subject=ADA, enabled=False)
    client.schedules.insert("bobs-own", "rate(1 day)", subject="customer:bob")
    page = client.schedules.list(subject=ADA, limit=1)
    assert [one.schedule_id for one in page.schedules] == ["daily"]
    rest = client.schedules.list(subject=ADA, page_token=page.next_page_token)
    assert ([one.schedule_id for one in rest.schedules], rest.next_page_token) == (["weekly"], None)
    assert [one.schedule_id for one in client.schedules.list("DISABLED", subject=ADA).schedules] == ["daily"]
    assert [row["taskId"] for row in client.schedules.export(subject=ADA)] == ["daily", "weekly"]
    with pytest.raises(InvalidInput, match="either a subject or a state"):
        client.schedules.export("ENABLED", subject=ADA)


def test_an_index_that_lags_gives_away_no_row_of_another(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id may have been Ada's before it was deleted, and inserted again for Bob."""
    listed = world.store.listed_by

    def late(*key: str, **page: Any) -> Listing:
        found = listed(*key, **page)
        return replace(found, ids=["bobs", *found.ids])

    monkeypatch.setattr(world.store, "listed_by", late)
    assert "bobs" not in [one.task_id for one in client.history(subject=ADA).entries]
    assert "bobs" not in [row["taskId"] for row in client.export(subject=ADA)]
    assert "bobs" not in by_result(client.delete_many(subject=ADA))[Changed]
    assert client.get("bobs").status == "scheduled"


def test_what_can_not_be_a_subject_is_refused(client: TaskClient) -> None:
    with pytest.raises(InvalidInput, match="subject: '' is not accepted"):
        client.history(subject="")
    with pytest.raises(InvalidInput, match="subject: '' is not accepted"):
        client.schedules.list(subject="")
    with pytest.raises(InvalidInput, match="expected a bucket, a range with start and end, or a subject"):
        client.history()
