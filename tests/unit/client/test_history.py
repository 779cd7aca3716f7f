"""History and counts: by bucket and by range, over shards, filtered, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from tests.builders import NOON
from tests.unit.client.support import client_of, each_state, fail, fail_for_now, started, world_of
from tests.unit.engine.support import World

from dynatick import CompleteLater, InvalidInput, NewTask, RetryPolicy, RetryPolicyRow, Status, TaskClient, TaskRow
from dynatick.client import BucketCounts, HistoryPage, TaskEntry
from dynatick.client import history as histories
from dynatick.client.views import Tally
from dynatick.domain.buckets import Bucket
from dynatick.domain.completion import completion_token
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.task import TERMINAL

BUCKET = "2026-12-31#12:30"
STATUSES = ("scheduled", "running", "completed", "failed", "cancelled")


@pytest.fixture
def mixed() -> TaskClient:
    """Two of each status in one bucket of four shards, at 12:30."""
    world = world_of(shard_count=4)
    client = client_of(world)
    for n in range(2):
        for status in ("completed", "failed", "cancelled"):
            client.insert(f"{status}-{n}", due_at="2026-12-31T12:30:00Z")
        client.cancel(f"cancelled-{n}")
        world.actions.behaviour[f"failed-{n}"] = fail
    world.next_tick(30)
    for status in ("scheduled", "running"):
        for n in range(2):
            client.insert(f"{status}-{n}", due_at="2026-12-31T12:31:00Z")
    for n in range(2):
        started(world, f"running-{n}")
    return client


RANGE: Mapping[str, str] = {"start": "2026-12-31T12:30:00Z", "end": "2026-12-31T12:32:00Z"}


def all_pages(client: TaskClient, bucket: str | None = None, **asked: object) -> list[HistoryPage]:
    pages = [client.history(bucket, **asked)]  # type: ignore[arg-type]
    while (token := pages[-1].next_page_token) is not None:
        pages.append(client.history(bucket, **asked, page_token=token))  # type: ignore[arg-type]
    return pages


def ids(pages: list[HistoryPage]) -> list[str]:
    return [entry.task_id for page in pages for entry in page.entries]


def test_a_bucket_is_all_its_shards_and_a_shard_that_is_named_only_that_one(mixed: TaskClient) -> None:
    page = mixed.history(BUCKET)
    assert page.next_page_token is None
    assert sorted(ids([page])) == sorted(f"{status}-{n}" for status in STATUSES[2:] for n in range(2))
    shards = [entry.bucket for entry in page.entries]
    assert shards == sorted(shards) and len(set(shards)) > 1
    by_shard = [task_id for shard in (1, 2, 3) for task_id in ids([mixed.history(f"{BUCKET}#{shard}")])]
    assert set(by_shard) < set(ids([mixed.history(Bucket.parse(BUCKET))]))
    assert mixed.history(f"{BUCKET}#9").entries == ()
    counts = [count for shard in (1, 2, 3) for count in mixed.bucket_counts(f"{BUCKET}#{shard}")]
    assert {count.bucket for count in counts} <= {f"{BUCKET}#{shard}" for shard in (1, 2, 3)}
    assert sum(count.total for count in counts) == len(by_shard)


@pytest.mark.parametrize("limit", [1, 2, 3, 9, 10, 1000])
def test_pages_add_up_whatever_their_size(mixed: TaskClient, limit: int) -> None:
    pages = all_pages(mixed, limit=limit, **RANGE)
    assert ids(pages) == ids(all_pages(mixed, limit=1000, **RANGE))
    assert len(ids(pages)) == len(set(ids(pages))) == 10
    assert all(len(page.entries) == limit for page in pages[:-1])
    for status in STATUSES:
        filtered = all_pages(mixed, status=status, limit=limit, **RANGE)
        assert sorted(ids(filtered)) == [f"{status}-0", f"{status}-1"]
        assert {entry.status for page in filtered for entry in page.entries} == {status}


def test_an_entry_says_what_is_known(mixed: TaskClient) -> None:
    entries = {entry.task_id: entry for entry in mixed.history(**RANGE).entries}
    failed, view = entries["failed-0"], mixed.get("failed-0")
    assert failed == TaskEntry(
        task_id="failed-0", bucket=str(view.bucket), status="failed", action="log", due_at=Bucket.parse(BUCKET).instant,
        finished_at=failed.finished_at, error="it broke", late_milliseconds=view.row["lateMilliseconds"],
    )  # fmt: skip
    assert failed.finished_at is not None
    assert [entries[task_id].late_milliseconds for task_id in ("running-0", "cancelled-0")] == [None, None]
    assert entries["running-0"].attempt == 1
    assert entries["scheduled-0"].to_row() == {
        "taskId": "scheduled-0", "taskDateTime": mixed.get("scheduled-0").bucket, "status": "scheduled",
        "action": "log", "dueAt": "2026-12-31T12:31:00Z", "attempt": 0,
    }  # fmt: skip


def test_counts_of_a_range(mixed: TaskClient) -> None:
    first, second = mixed.bucket_counts(**RANGE)
    late = sorted(
        entry.late_milliseconds for entry in mixed.iter_history(BUCKET) if entry.late_milliseconds is not None
    )
    assert len(late) == 4
    assert (first.lateness_max_ms, dict(first.counts)) == (late[-1], {"completed": 2, "failed": 2, "cancelled": 2})
    assert second == BucketCounts(bucket="2026-12-31#12:31", counts={"scheduled": 2, "running": 2})
    assert (first.total, second.total) == (6, 4)
    assert list(mixed.bucket_counts(BUCKET)) == [first]
    assert list(mixed.bucket_counts("2026-12-31#12:29")) == []
    for limit in (1, 3, 6, 100):
        page = mixed.history(BUCKET, limit=limit)
        assert list(mixed.bucket_counts(BUCKET, listed=page)) == [first]
    (failed,) = mixed.bucket_counts(mixed.select(**RANGE, status="failed", prefix="failed-1"))
    assert failed.counts == {"failed": 1}


def test_the_lateness_of_a_bucket_is_read_from_the_index_alone(world: World, client: TaskClient) -> None:
    for n in range(1, 201):
        late = n if n != 7 else "hand-written"
        world.store.create(
            {"taskId": f"t{n}", "taskDateTime": BUCKET, "outcome": "completed", "lateMilliseconds": late}
        )
    (counts,) = client.bucket_counts(BUCKET)
    assert all(task_id.startswith("_dynatick#") for task_id in world.rigged.reads), "no row of a task"
    page = client.history(BUCKET, limit=1000)
    world.rigged.forget()
    assert list(client.bucket_counts(BUCKET, listed=page)) == [counts]
    assert world.rigged.polls == [], "what was read is counted"
    assert counts.counts == {"completed": 200}
    assert (counts.lateness_p50_ms, counts.lateness_max_ms) == (101, 200)
    assert counts.lateness_p99_ms is not None
    assert 0.98 * 198 <= counts.lateness_p99_ms <= 198
    row = counts.to_row()
    assert [row["latenessP50Ms"], row["latenessMaxMs"]] == [101, 200]


def test_a_range_begins_with_its_start_and_ends_before_its_end(client: TaskClient) -> None:
    for minute in range(1, 6):
        client.insert(f"t{minute}", due_at=f"2026-12-31T12:0{minute}:00Z")

    def found(start: str, end: str) -> list[str]:
        return ids(all_pages(client, start=f"2026-12-31T12:{start}Z", end=f"2026-12-31T12:{end}Z"))

    assert found("02:00", "04:00") == ["t2", "t3"]
    assert found("01:01", "04:01") == ["t2", "t3", "t4"]
    assert ids(all_pages(client, start="2026-12-31#12:02", end="2026-12-31#12:04")) == ["t2", "t3"]
    # Ranges side by side neither overlap nor leave a gap.
    parts = [found(start, end) for start, end in pairwise(["00:00", "02:30", "03:00", "09:00"])]
    assert [i for part in parts for i in part] == ["t1", "t2", "t3", "t4", "t5"]


def test_a_page_polls_no_more_buckets_than_it_needs(world: World, client: TaskClient) -> None:
    for n in range(50):
        client.insert(f"t{n:02}", due_at="2026-12-31T12:30:00Z")
    end = "2027-01-10T00:00:00Z"
    for asked, polls in (
        ({"bucket": BUCKET}, 1), ({"start": "2026-12-31T12:30:00Z", "end": end}, 1),
        ({"start": "2026-12-31T12:20:00Z", "end": end}, 10 + 1 + 8),
    ):  # fmt: skip
        world.rigged.forget()
        assert len(client.history(**asked, limit=10).entries) == 10
        assert 1 <= len(world.rigged.polls) <= polls


def test_a_long_range_ends_in_several_pages(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_POLLS", 100)
    client.insert("late", due_at="2026-12-31T15:59:00Z")
    world.rigged.forget()
    pages = all_pages(client, start="2026-12-31T12:00:00Z", end="2026-12-31T16:00:00Z")
    assert [len(page.entries) for page in pages] == [0, 0, 1]
    assert len(world.rigged.polls) <= 240 + 3 * 8
    empty = all_pages(client, start="2026-12-30T12:00:00Z", end="2026-12-30T13:40:00Z")
    assert [page.next_page_token for page in empty] == [None]


def test_a_late_entry_is_corrected_by_a_row(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row has moved, ended or gone, and the entry does not say so yet."""
    for i in ("gone", "moved", "ended", "waits"):
        client.insert(i, due_at="2026-12-31T12:30:00Z")
    page = world.store.query_bucket(Bucket.parse(BUCKET))
    world.store.delete("gone")
    client.reschedule("moved", due_at="2026-12-31T13:00:00Z")
    client.cancel("ended")
    monkeypatch.setattr(world.store, "query_bucket", lambda bucket, **asked: page)
    shown = {entry.task_id: entry.status for entry in client.history(BUCKET).entries}
    assert shown == {"ended": "cancelled", "waits": "scheduled"}
    assert [e.task_id for e in client.history(BUCKET, status="scheduled").entries] == ["waits"]


def test_what_was_written_by_hand_can_be_listed(world: World, client: TaskClient) -> None:
    world.rigged.put({"taskId": "raw", "taskDateTime": BUCKET})  # as nobody has seen it yet
    world.rigged.put(
        {"taskId": "odd", "taskDateTime": BUCKET, "status": b"x", "action": b"y", "dueAt": {1}, "attempt": "z"}
    )
    world.rigged.put({"taskId": "ended", "taskDateTime": BUCKET, "outcome": b"x", "error": 5})
    ended, odd, raw = client.history(BUCKET).entries
    assert (odd.status, odd.action, odd.due_at, odd.attempt) == ("Binary(b'x')", "b'y'", None, 0)
    assert (ended.status, ended.error) == ("b'x'", "5")
    assert (raw.task_id, raw.status, raw.action) == ("raw", "unscheduled", None)
    assert client.history(BUCKET, status="unscheduled").entries == (raw,)


@pytest.fixture
def several() -> TaskClient:
    """Returns a client of a bucket with tasks of two actions and five schedules: ended, failed and waiting ones."""
    world = world_of(shard_count=2)
    for n in range(30):
        row: dict[str, object] = {
            "taskId": f"{'ab'[n % 2]}-{n:02d}", "taskDateTime": BUCKET, "action": ("log", "mail")[n % 3 == 0],
            "scheduleId": f"s{n % 5}", "attempt": n % 4, "status": "scheduled",
        }  # fmt: skip
        if n >= 10:
            row |= {"outcome": "completed", "status": "completed"}
        world.store.create(row)
    return client_of(world)


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"action": "mail"}, range(0, 30, 3)),
        ({"schedule_id": "s3"}, range(3, 30, 5)),
        ({"prefix": "b-1"}, range(11, 20, 2)),
        ({"prefix": "a-", "action": "mail", "schedule_id": "s0", "status": "scheduled"}, [0]),
        ({"prefix": "c"}, []),
    ],
)
def test_a_limit_means_tasks_that_are_wanted(
    several: TaskClient, limit: int, asked: dict[str, str], expected: Sequence[int]
) -> None:
    pages = all_pages(several, BUCKET, limit=limit, **asked)
    assert sorted(ids(pages)) == sorted(f"{'ab'[n % 2]}-{n:02d}" for n in expected)
    assert all(len(page.entries) == limit for page in pages[:-1]) and len(pages[-1].entries) <= limit
    exported = [str(row["taskId"]) for row in several.export(BUCKET, **asked)]  # type: ignore[arg-type]
    assert exported == ids(pages)


def test_attempts_are_read_on_demand_and_a_page_token_of_another_prefix_is_refused(several: TaskClient) -> None:
    listed = {entry.task_id: entry.attempt for entry in several.history(BUCKET).entries}
    assert (listed["a-02"], listed["b-11"]) == (2, None)
    shown = {entry.task_id: entry.attempt for entry in several.history(BUCKET, attempts=True).entries}
    assert shown == {task_id: int(task_id[2:]) % 4 for task_id in shown} and len(shown) == 30
    token = several.history(BUCKET, prefix="b-", limit=1).next_page_token
    with pytest.raises(InvalidInput, match="pageToken"):
        several.history(BUCKET, prefix="a-", page_token=token)
    with pytest.raises(InvalidInput, match="after: 'b-01' is not accepted; expected an id that begins with a-"):
        several.export(BUCKET, prefix="a-", after=(BUCKET, "b-01"))


def test_tasks_are_listed_from_the_index_alone_with_their_outcome_and_are_open_otherwise() -> None:
    world = each_state()
    client = client_of(world)
    client.schedules.insert("schedule", "rate(1 minute)")
    range_ = {"start": NOON, "end": NOON + timedelta(hours=9)}
    (failed,) = client.iter_history(**range_, status="failed")
    world.rigged.forget()
    listed = {entry.task_id: entry for entry in client.iter_listed(**range_)}
    assert not {*world.rigged.reads} & {*listed}, "no row of a task"
    assert {task_id: str(entry.status) for task_id, entry in listed.items()} == {
        "completed": "completed", "failed": "failed", "cancelled": "cancelled",
        "waits-for-its-retry": "open", "scheduled": "open", "running": "open",
        "waiting": "waiting",
    }  # fmt: skip
    assert listed["failed"] == failed


def test_the_index_tells_a_task_that_waits_for_a_completion_from_others_that_have_begun() -> None:
    world = each_state()
    client = client_of(world)
    world.actions.behaviour |= {"beats": lambda *_: CompleteLater(timedelta(hours=8), heartbeat=timedelta(hours=1))}
    world.actions.behaviour |= {"given-up": world.actions.behaviour["waiting"], "moved": fail_for_now}
    for name in ("beats", "given-up", "moved"):
        client.insert(name, delay_seconds=1)
    world.next_tick()

    def token(task_id: str) -> str:
        return completion_token(str(world.row(task_id)["lease"]), task_id)

    client.heartbeat(token("beats"))
    client.fail(token("given-up"), "no such codec")
    client.reschedule("moved", delay_seconds=3600)  # after its first attempt, and it has no next one planned

    def listed() -> dict[str, str]:
        entries = client.iter_listed(start=NOON, end=NOON + timedelta(hours=12))
        return {entry.task_id: str(entry.status) for entry in entries if entry.status not in TERMINAL}

    assert listed() == {
        "waits-for-its-retry": "open", "scheduled": "open", "running": "open", "moved": "open", "given-up": "open",
        "waiting": "waiting", "beats": "waiting",
    }  # fmt: skip
    status = client.operations.status(hours=24)
    assert (status.awaiting_completion, status.waiting) == (2, 5)
    world.clock.to(world.clock() + timedelta(hours=9))
    assert "waiting" not in listed().values(), "its time is over: a recovery may run it"


@pytest.mark.parametrize("hours", [range(9), range(1, 9)])
def test_pages_with_counts_say_the_same_as_entries(hours: range) -> None:
    world = each_state()
    client = client_of(world)
    client.schedules.insert("schedule", "rate(1 minute)")
    for n in range(3):
        client.insert(f"more-{n}", delay_seconds=1)
        client.insert(f"later-{n}", delay_seconds=4 * 3600)
    members = [{"text": str(n)} for n in range(40)]
    client.batches.insert(members[:30], batch_id="ran", action="log")
    client.batches.insert(members, batch_id="later", action="log", due_at=world.clock() + timedelta(hours=5))
    client.insert("with-a-key", delay_seconds=4 * 3600, limit_key="customer:1")
    world.next_tick()
    range_ = {"start": NOON + timedelta(hours=hours.start), "end": NOON + timedelta(hours=hours.stop)}
    expected, found, kept = Tally(), Tally(), set()
    for entry in client.iter_listed(**range_):
        expected.add(entry)
        if entry.status in ("open", "waiting", "failed") and (entry.has_begun or entry.limit_key or entry.error):
            kept.add(entry.task_id)
    for page in client.operations.listed_pages(**range_):
        found.counts.update(page.counts)
        for entry in page.entries:
            assert entry.bucket == str(page.bucket)
            found.add(entry)
            kept.discard(entry.task_id)
    assert found.counts == expected.counts and not kept
    assert sum(expected.counts.values()) > (70 if hours.start == 0 else 40)


def test_all_pages_of_a_history_are_read_as_they_are_consumed(world: World, client: TaskClient) -> None:
    ids = [f"{minute}-{n:02}" for minute in range(5) for n in range(90)]
    for task_id in reversed(ids):
        client.insert(task_id, task_date_time=f"2026-12-31#13:0{task_id[0]}")
    world.rigged.forget()
    how = {"start": "2026-12-31T13:00:00Z", "end": "2026-12-31T14:00:00Z"}
    entries = client.iter_history(**how)
    assert world.rigged.polls == [], "nothing before the first is asked for"
    first = next(entries)
    assert len(set(world.rigged.polls)) < 20, "not the whole hour for the first"
    assert [entry.task_id for entry in (first, *entries)] == ids
    client.cancel("2-07")
    assert [entry.task_id for entry in client.iter_history(**how, status=Status.CANCELLED)] == ["2-07"]


def test_a_status_is_an_enum_and_text(client: TaskClient) -> None:
    view = client.insert("t", task_date_time=BUCKET)
    (entry,) = client.history(BUCKET).entries
    assert view.status is entry.status is Status.SCHEDULED
    assert view.status == "scheduled"
    assert type(view.to_row()["status"]) is type(entry.to_row()["status"]) is str
    client.store.create({"taskId": "odd", "status": "paused"})
    assert client.get("odd").status == "paused"


def test_a_map_of_a_task_has_the_names_that_insert_many_takes() -> None:
    assert TaskRow.__required_keys__ == {"taskId"}
    row = dict.fromkeys(TaskRow.__annotations__)
    task = NewTask.from_row(row)
    assert task.attributes == {}, "none of them is taken for the caller's own"
    assert set(RetryPolicyRow.__annotations__) == set(RetryPolicy().to_row())


def test_a_range_up_to_now_has_what_has_run_before_the_tick_of_its_bucket() -> None:
    """As with precision second: a task that is due at 12:01:20 lies at 12:02, and has run when one looks."""
    world = world_of(tick_minutes=5)
    client = client_of(world)
    for task_id in ("ran", "waits"):
        client.insert(task_id, due_at="2026-12-31T12:01:20Z")
    world.clock.to(NOON + timedelta(seconds=100))
    world.store.write(ConditionalUpdate(task_id="ran", set={"status": "completed", "outcome": "completed"}))
    for asked in ({"last": "10m"}, {"start": "-10m", "end": "now"}):
        assert [one.task_id for one in client.history(**asked).entries] == ["ran"]  # type: ignore[arg-type]
        assert [row["taskId"] for row in client.export(**asked)] == ["ran"]  # type: ignore[arg-type]
        assert [dict(one.counts) for one in client.bucket_counts(**asked)] == [{"completed": 1}]  # type: ignore[arg-type]
    assert list(client.cancel_many(last="10m")) == []
    status = client.operations.status(hours=24)
    assert (status.completed, status.waiting) == (1, 1)
    assert [one.task_id for one in client.history(start="-10m", end="+10m").entries] == ["ran", "waits"]
