"""``dynatick change``: who has changed many tasks, and what came of the runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, fail

from dynatick import MemoryStore, TaskClient
from dynatick.client import change_records
from dynatick.domain.conditional_update import Unknown

RANGE = "from=2026-12-31T11:02:00Z"


@pytest.fixture
def failed(world: InProcess) -> InProcess:
    client = TaskClient(world.store, clock=world.clock)
    for name in ("a", "b", "c"):
        world.actions.behaviour[name] = fail
        client.insert(name, delay_seconds=1, action="log")
    world.next_tick()
    return world


def change_ids(shell: Shell) -> list[str]:
    return [str(one["changeId"]) for one in shell("change", "list", "-o", "json").json["changes"]]


def test_a_change_of_many_tasks_is_listed_with_who_made_it(shell: Shell, failed: InProcess) -> None:
    assert shell("change", "list").err == "Nothing was changed by a filter in the last 7d\n"
    for given in (
        ("redrive", "--dry-run"), ("redrive", "--prefix", "none"), ("redrive", "--set", "to=secret@example.com"),
        ("cancel", "--action", "log", "--status", "scheduled"),
    ):  # fmt: skip
        failed.clock.forward(seconds=1)
        assert shell("task", given[0], "--last", "1h", "--next", "1h", *given[1:]).code == 0
    failed.clock.forward(seconds=1)
    assert shell("deadletter", "redrive").err == "3 dropped\n", "their tasks are redriven already: no task was changed"
    listed = shell("change", "list", "--last", "1h")
    (cancelled, redriven) = change_ids(shell)
    assert [" ".join(line.split()) for line in listed.lines] == [
        "ID AT CHANGE TASKS STATE GIVEN BY",
        f"{cancelled} 2026-12-31T12:01:04Z cancel 3 done action=log {RANGE} status=scheduled "
        "to=2026-12-31T13:02:00Z ada",
        f"{redriven} 2026-12-31T12:01:03Z redrive 3 done {RANGE} set=another one status=failed "
        "to=2026-12-31T13:02:00Z ada",
    ]
    assert listed.err == f"What came of the runs: dynatick change show {redriven}\n"
    assert "secret" not in str(failed.row(f"_dynatick#change#{redriven}"))
    failed.clock.forward(days=31)
    assert shell("change", "list", "--last", "31d").out == "", "they have expired"


def test_a_later_look_says_what_came_of_the_runs_of_a_redrive(
    shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    del failed.actions.behaviour["a"]
    assert shell("deadletter", "redrive", "--error", "smtp").code == 0
    (change_id,) = change_ids(shell)
    waiting = shell("change", "show", change_id)
    assert waiting.err.splitlines() == [
        "redrive dead letters at 2026-12-31T12:01:00.200Z by ada (command line)", "Given: error=smtp",
        "done: 3 changed", "Of their runs 0 completed, 3 waiting",
    ]  # fmt: skip
    monkeypatch.setattr("time.sleep", lambda seconds: failed.next_tick())
    ended = shell("change", "show", change_id, "--wait")
    assert ended.err.splitlines()[-2:] == ["3 redriven: 1 completed, 2 failed again", "error: 2 did not complete"]
    assert ended.code == 8
    as_json = shell("change", "show", change_id, "-o", "json").json
    assert (as_json["runs"]["completed"], as_json["runs"]["failed"], as_json["runs"]["waiting"]) == (1, 2, 0)
    assert "packedRuns" not in as_json


def test_runs_that_do_not_fit_into_the_record_are_counted(
    shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_records, "MAX_PACKED_BYTES", 20)
    assert shell("task", "redrive", "--last", "1h").code == 0
    (change_id,) = change_ids(shell)
    shown = shell("change", "show", change_id)
    assert shown.err.splitlines()[-1] == "Of their runs 0 completed, 2 waiting; 1 more are not followed"


def test_a_record_that_is_malformed_is_shown_without_runs(shell: Shell, failed: InProcess) -> None:
    assert shell("task", "redrive", "--last", "1h").code == 0
    (change_id,) = change_ids(shell)
    row = dict(failed.row(f"_dynatick#change#{change_id}"))
    failed.store.delete(f"_dynatick#change#{change_id}")
    assert failed.store.create({**row, "body": b"no zlib", "given": "x", "changed": "many"})
    assert shell("change", "show", change_id).err.splitlines()[1:] == [
        "done: 0 changed", "Of their runs 0 completed",
    ]  # fmt: skip
    failed.store.delete(f"_dynatick#change#{change_id}")
    assert failed.store.create({**row, "createdAt": "yesterday"})
    assert change_ids(shell) == [] and shell("change", "show", change_id).code == 4


def test_a_change_that_breaks_off_says_why(shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(session: object, results: Iterator[object], *_: object) -> None:
        next(results)
        raise KeyboardInterrupt

    failed.clock.forward(seconds=1)
    with monkeypatch.context() as patch:
        patch.setattr("dynatick.cli.bulk_change.show_results", interrupted)
        assert shell("task", "redrive", "--last", "1h").code == 130
    failed.next_tick()
    failed.clock.forward(seconds=1)

    write = MemoryStore.write

    def refused(store: MemoryStore, change: object) -> object:
        return write(store, change) if "#change#" in change.task_id else Unknown("throttled")  # type: ignore[attr-defined, arg-type]

    monkeypatch.setattr(MemoryStore, "write", refused)
    assert shell("task", "redrive", "--last", "1h").code == 6
    found = shell("change", "list", "-o", "json").json["changes"]
    assert [(one["state"], one["changed"], one["unanswered"], one.get("problem")) for one in found] == [
        ("done", 0, 3, None), ("aborted", 3, 0, None),
    ]  # fmt: skip


def test_a_change_by_a_page_is_aborted(shell: Shell, failed: InProcess) -> None:
    changes = TaskClient(failed.store, clock=failed.clock).operations.changes
    changes.begin(changes.new("cancel", by="eve", interface="page", given={}, change_id="0a", can_abort=True))
    assert "abort" not in shell("change", "show", "0a").err
    assert shell("change", "abort", "0a").err.splitlines() == [
        "Its process is asked to end it, by ada", "What came of it: dynatick change show 0a",
    ]  # fmt: skip
    assert shell("change", "abort", "0a", "-o", "json").json["abortBy"] == "ada"
    said = shell("change", "show", "0a").err.splitlines()
    assert said[-2:] == ["Its end is not known: it goes on, or its process has died", "ada has asked to abort it"]
    assert shell("change", "abort", "none").code == 4
    failed.clock.forward(seconds=1)  # the list shows the latest first
    assert shell("task", "redrive", "--last", "1h").code == 0
    assert shell("change", "abort", change_ids(shell)[0]).code == 5
