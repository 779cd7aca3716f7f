"""The end of a sequence: faults stop, enough ticks pass, and all that was inserted must have ended as it had to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Set

from tests.model.expected_task import END, FAIL, RUN, ExpectedTask, number
from tests.model.faulty_store import Request
from tests.model.installation import Installation, Tick
from tests.model.stream import StreamMode
from tests.model.wake_up_queue import QueueMode

from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import is_terminal, state_of
from dynatick.domain.packs import parse_member_id, parse_pack_id
from dynatick.domain.task import Row
from dynatick.engine.cursor import cursor_id
from dynatick.engine.shards import CLOSE_EVERY

MAX_TICKS = 60
LAST_TICKS = 8  # within which nothing but slow polls keeps S back
SCHEDULES_TICKS = 5


def complete_schedules(model: Installation) -> None:
    """Faults stop, and a few ticks pass: by then every occurrence that was due is made or missed. Deletes them."""
    stop_faults(model)
    model.wait_until_idle()
    _wait_for_index(model)
    _reconcile(model)  # finds those of which the stream has sent no record
    now = format_instant(model.simulation.instant)
    due = [row for row in model.open_rows() if str(row.get("nextOccurrenceAt", "~")) <= now]
    _tick(model, at_least=max(map(_bucket_minute, due), default=-math.inf))  # where the grid was coarser, later
    for _ in range(SCHEDULES_TICKS):
        _tick(model)
    _reconcile(model)
    if model.reconciled[-1] != (0, 0):
        model.oracle.report(
            f"reconcile found and could not repair {model.reconciled[-1]} although the schedules are well"
        )
    last = model.oracle.seconds(instant_of(model.rules.grid.tick_after(minute_of(model.simulation.instant) - 1)))
    last -= 60 * model.rules.grid.tick_minutes
    for task in model.oracle.tasks:
        row = model.table.get(task.task_id)
        if task.schedule is not None and row is not None and model.oracle.task_of(row) is task:
            task.schedule.check_complete(last, row)
            task.schedule.check_reported(last, row)
            model.table.delete(model.hand, task.task_id)


def complete_all(model: Installation) -> None:
    """Waits until everything has ended, and reports what did not end as it had to."""
    oracle = model.oracle
    stop_faults(model)
    complete_rows(model)
    rows = {oracle.task_of(row).number: row for row in model.table.everything() if "expected" in row}
    for task in oracle.single_tasks():
        if task.began and task.schedule is None:
            _check_task(model, task, rows.get(task.number))
    for key, times in _effects(model).items():
        if times > 1:
            oracle.report(f"the effect {key} was committed {times} times")


def complete_rows(model: Installation) -> None:
    """Ticks until no row is open, and reports what no tick has found, what holds a cursor back, and which limits were
    exceeded."""
    oracle = model.oracle
    _tick_until_done(model)
    held_up = _held_up(_overlooked(model))
    for row in model.open_rows():
        if not oracle.task_of(row).unseen and row["taskId"] not in held_up:
            oracle.report(f"{row['taskId']}: waits for ever, {state_of(row)} in {row.get('taskDateTime')}")
    _wait_for_index(model)
    _reconcile(model)
    _tick_until_done(model)
    for row in model.open_rows():
        oracle.report(f"{row['taskId']}: not even reconcile has found it, {state_of(row)} in {row.get('taskDateTime')}")
    _check_cursors(model)
    _reconcile(model)
    if model.reconciled[-1] != (0, 0):
        oracle.report(f"reconcile found and could not repair {model.reconciled[-1]} at the end")
    oracle.check_limits(model.rules.key_limits)
    oracle.check_rates(model.rate_limits)


def _wait_for_index(model: Installation) -> None:
    """The index may lag so long that reconcile has to find what it hid, and the last of that must be over."""
    model.pass_time(max(0.0, model.table.all_shown_at - model.simulation.now))


def stop_faults(model: Installation) -> None:
    model.is_faultless = True
    model.dead_letters_refused = False
    model.plan(())
    model.table.lag = 0.0
    model.stream.set(StreamMode(batch=model.stream.mode.batch))
    model.wake_up_queue.set(QueueMode())
    model.wait_until_idle()  # what is to be paused is paused by then
    for action in [*model.oracle.paused]:
        model.send_request(Request("resume_action"), lambda c, action=action: c.operations.resume_action(action))
        model.wait_until_idle()


def _reconcile(model: Installation) -> None:
    model.reconcile()
    model.wait_until_idle()


def _tick_until_done(model: Installation) -> None:
    """Ticks until nothing is open but what only reconcile finds, and what waits for that. Where nothing is due, time
    leaps."""
    for _ in range(MAX_TICKS):
        overlooked = _overlooked(model)
        held_up = _held_up(overlooked)
        waiting = [row for row in model.open_rows() if row["taskId"] not in overlooked | held_up]
        if not waiting and model.is_idle:
            return
        if not waiting:  # yet
            model.wait_until_idle()
            continue
        _tick(model, at_least=min(_bucket_minute(row) for row in waiting))


def _overlooked(model: Installation) -> set[str]:
    return {str(row["taskId"]) for row in model.overlooked()}


def _held_up(overlooked: Set[str]) -> set[str]:
    """Batches that wait for one of their packs or members which is overlooked. The ticks do find them themselves."""
    named = [parse_member_id(task_id) or parse_pack_id(task_id) for task_id in overlooked]
    return {of_batch[0] for of_batch in named if of_batch is not None} - overlooked


def _tick(model: Installation, *, at_least: float = -math.inf) -> None:
    grid = model.rules.grid
    minute = grid.tick_after(minute_of(model.simulation.instant))
    if at_least > minute:
        minute = grid.tick_at_or_after(instant_of(int(at_least)))
    model.simulation.run_until(model.oracle.seconds(instant_of(minute)))
    model.fire(minute, Tick())
    following = model.oracle.seconds(instant_of(grid.tick_after(minute)))
    model.wait_until_idle(
        following - model.simulation.now - 0.5
    )  # the next one comes in time, however long this one takes


def _bucket_minute(row: Row) -> float:
    bucket = Bucket.canonical(row.get("taskDateTime"))
    return -math.inf if bucket is None else bucket.minute


def _check_cursors(model: Installation) -> None:
    """No row is open any more, so nothing may hold a shard back for ever."""
    for n in range(3 * LAST_TICKS):
        _tick(model)
        behind = _behind(model)
        if n >= LAST_TICKS and not behind:
            return
    now = Bucket(minute_of(model.simulation.instant))
    for row in behind:
        model.oracle.report(f"{row['taskId']}: drained through {row['drainedThrough']} only, at {now}")


def _behind(model: Installation) -> list[Row]:
    """Cursors that many a tick has not moved: of the shards that the settings name. A process that died before it wrote
    them may have left cursors of others, which no task is put behind."""
    now, maximum = minute_of(model.simulation.instant), (LAST_TICKS - 1) * model.rules.grid.tick_minutes
    table = {str(row["taskId"]): row for row in model.table.everything()}
    shards = int(str(table["_dynatick#settings"]["shardsEver"]))
    rows = [row for shard in range(shards) if (row := table.get(f"_dynatick#cursor#{shard}")) is not None]
    # An idle shard after the first is closed every few minutes, and drained two such writes later.
    later = {row["taskId"]: 0 if row["taskId"] == cursor_id(0) else 3 * CLOSE_EVERY for row in rows}
    return [row for row in rows if now - Bucket.parse(row["drainedThrough"]).minute > maximum + later[row["taskId"]]]


def _effects(model: Installation) -> Counter[str]:
    """How often each effect was committed, by the idempotency key of what has returned it."""
    return Counter(entry["Put"]["Item"]["id"] for entry in model.store.committed)  # type: ignore[index]


def _check_task(model: Installation, task: ExpectedTask, row: Row | None) -> None:
    oracle = model.oracle
    if row is None:
        if not task.gone:
            oracle.report(f"{task.task_id}: vanished")
        return
    if not is_terminal(row):
        return  # reported already
    outcome = row["outcome"]
    run = number(row.get("run"), 1)
    executions = oracle.executions_of(task, run)
    claims = [claim for claim in oracle.claims.values() if claim.task is task and claim.run == run]
    if outcome == "completed" and task.must != END:
        last = executions.get(number(row.get("attempt")))
        if last is None or last.result != "ok":
            oracle.report(f"{task.task_id}: completed, and never executed in run {run}")
        elif last.commits and not _effects(model)[last.key]:
            oracle.report(f"{task.task_id}: completed without its effect {last.key}")
    if outcome == "failed" and task.must == RUN and not executions:
        died = sum(claim.process.dead or claim.process.raised for claim in claims)
        if died < task.maximum:
            oracle.report(f"{task.task_id}: failed and never executed: {row.get('error')}")
    if task.must == FAIL and outcome not in ("failed", "cancelled"):
        oracle.report(f"{task.task_id}: {outcome}, and it cannot be understood")
