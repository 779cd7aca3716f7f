"""The nineteen rules of the protocol, and what keeps the runs of schedules, taken out one by one: each time
some test must fail (``make mutations``).

Each mutation is a change of one text in a temporary copy of the package. It prints which test fails for it, and ends
with 1 if some mutation goes unnoticed, or if its text is no longer in the code: then it has to be written anew.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (
    "shared",
    "stack",
    "functions",
    "tests/unit",
    "tests/sandbox",
    "tests/search",
    "tests/builders.py",
    "tests/conftest.py",
    "template.yaml",
    "pyproject.toml",
    "docs/reference",
)
RULES = "tests/unit/engine/test_rules.py"
TEMPLATE = "tests/unit/test_template.py"
WATERMARK = "tests/unit/engine/test_watermark.py"
RECOVERY = "tests/unit/engine/test_recovery.py"
DRAIN = "tests/unit/engine/test_drain.py"
APP = "tests/unit/test_processor_app.py"
STORE = "tests/unit/store"
LIFECYCLE = "tests/unit/domain/test_lifecycle.py"
CLAIMS = "tests/unit/engine/test_claims.py"
RECORD = "tests/unit/engine/test_record.py"
POOLS = "tests/unit/engine/test_pools.py"
PLACEMENT = "tests/unit/engine/test_placement.py"
SCHEDULES = "tests/unit/engine/test_recurring.py"
WAKE_UPS = "tests/unit/engine/test_wake_ups.py"
WORKERS = "tests/unit/engine/test_workers.py"
SHARDS = "tests/unit/engine/test_shards.py"
RECONCILE = "tests/unit/engine/test_reconcile.py"
WRITES = "tests/unit/engine/test_conditional_write.py"
RELEASING = "tests/unit/engine/test_releasing.py"
RECURRING = "tests/unit/engine/test_recurring.py tests/unit/domain/test_recurrence.py"
OF_SCHEDULES = 0
ENGINE, DOMAIN, TABLE = "shared/dynatick/engine", "shared/dynatick/domain", "shared/dynatick/store/dynamodb.py"


@dataclass(frozen=True)
class Mutation:
    """A rule, or a part of one, taken out."""

    rule: int  # OF_SCHEDULES: none of them, for what is more with schedules
    what: str  # happens instead
    file: str
    old: str
    new: str
    tests: str = RULES
    unreachable: str = ""  # why no sequence of tests/model shows it

    def applied_to(self, text: str) -> str | None:
        """The file's text with the mutation; None if what it replaces is not there, or not only once."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


COSTS_PUNCTUALITY = "costs punctuality only: the tick runs what no wake-up runs"
COSTS_MESSAGES = "costs messages only: a wake-up that comes again is harmless"
MUTATIONS = (
    Mutation(1, "a pass closes nothing", f"{ENGINE}/cursor.py",
             "closed_through=max(cursor.closed_through, tick)", "closed_through=cursor.closed_through"),
    Mutation(2, "only minutes of the present grid are polled", f"{ENGINE}/poll_window.py",
             "            if is_final or minute > skip_through:",
             "            if minute % self.rules.grid.tick_minutes == 0 and (is_final or minute > skip_through):",
             WATERMARK),
    Mutation(3, "any poll is final, however late the index", f"{ENGINE}/poll_window.py",
             "return quiet_from + self.rules.index_settled_after", "return quiet_from", WATERMARK),
    Mutation(3, "a contended row does not hold its bucket back", f"{ENGINE}/poll_window.py",
             "return not self.complete or self.contended > 0 or self.in_flight > 0",
             "return not self.complete or self.in_flight > 0"),
    Mutation(3, "an attempt that was not recorded does not hold its bucket back", f"{ENGINE}/claiming.py",
             "self.window.end_in_flight(place.minute, is_open=is_open)",
             "self.window.end_in_flight(place.minute, is_open=False)", WATERMARK),
    Mutation(3, "entries of a claim that failed do not hold their bucket back", f"{ENGINE}/claiming.py",
             "        for bucket, _ in entries:\n            self.window.end_in_flight(bucket.minute, is_open=True)",
             "        for bucket, _ in entries:\n            self.window.end_in_flight(bucket.minute, is_open=False)",
             WATERMARK),
    Mutation(3, "occurrences that another process runs do not hold their bucket back", f"{ENGINE}/claiming.py",
             "            self.window.add_contended(minute)\n", "            pass\n", WATERMARK),
    Mutation(3, "the time of a poll is read after its query", f"{ENGINE}/page_reader.py",
             "self._execution.events.put(partial(read.finish, began, page, error))",
             "self._execution.events.put(partial(read.finish, services.clock(), page, error))", WATERMARK),
    Mutation(3, "a row that can't be finished is never put off", f"{ENGINE}/poll_window.py",
             "if poll.stuck and not poll.in_flight and len(poll.stuck) == poll.contended:", "if False:", RECOVERY),
    Mutation(3, "what is put off goes no further each time", f"{DOMAIN}/retry.py",
             "min(_FIRST_DEFERRAL * (1 << min(earlier, 8)), _LONGEST_DEFERRAL)", "_FIRST_DEFERRAL", RECOVERY),
    Mutation(3, "a failure whose message is refused keeps its bucket", f"{ENGINE}/record.py",
             "_Record(self._deferral(failure, now), RecordResult.DEFERRED",
             "_Record(failure.change, RecordResult.DEFERRED", RECOVERY),
    Mutation(4, "checkpointAt is read before the closing write", f"{ENGINE}/drain.py",
             "closed_at=services.clock())", "closed_at=started)"),
    Mutation(4, "every pass sets a new mark", f"{ENGINE}/poll_window.py",
             "if drained >= c.checkpoint:", "if True:"),
    Mutation(4, "the checkpoint stays though another tick has closed more", f"{ENGINE}/shard_lease.py",
             "self.window.cursor, self.window.closed_at = present, self.clock()", "self.window.cursor = present",
             WATERMARK),
    Mutation(4, "occurrences of a pass leave the checkpoint", f"{ENGINE}/poll_window.py",
             "new = replace(new, checkpoint_at=max(new.checkpoint_at, self.written_at))", "pass", WATERMARK),
    Mutation(4, "openUntil is taken back while writes are under way", f"{ENGINE}/poll_window.py",
             "if self.opened and not self.writing:", "if self.opened:", WATERMARK),
    Mutation(4, "a long poll keeps none of its progress", f"{ENGINE}/shard_lease.py",
             "replace(self.window.progress(), lease_until=self.clock() + SHARD_LEASE)",
             "replace(self.window.cursor, lease_until=self.clock() + SHARD_LEASE)", DRAIN),
    Mutation(5, "a newcomer to a closed bucket is left there", f"{ENGINE}/placement.py",
             "return bucket.minute > closed[bucket.shard]", "return True"),
    Mutation(5, "a bucket is compared with S", f"{ENGINE}/placement.py",
             "bucket.shard, self.clock()).closed_through", "bucket.shard, self.clock()).drained_through"),
    Mutation(5, "a move has no conditions", f"{DOMAIN}/lifecycle.py",
             "conditions=as_read(row, attr.OUTCOME, *attr.TIME_INPUTS),", "conditions=(),", PLACEMENT),
    Mutation(6, "running rows are not moved", f"{ENGINE}/placement.py",
             "is_terminal(row) or is_own_row(task_id):\n                return row\n            change",
             'is_terminal(row) or row.get("status") == "running":\n                return row\n            change'),
    Mutation(7, "a move is not checked again", f"{ENGINE}/placement.py",
             "row = self._after(row, result)  # and check", "return self._after(row, result)  # and check"),
    Mutation(7, "a pass does not check what it has moved", f"{ENGINE}/placement.py",
             "if not self._is_open(bucket, closed):", "if False:", f"{RECORD} {WAKE_UPS}"),
    Mutation(14, "a new shard has no cursor until a tick needs it", f"{ENGINE}/installation_settings.py",
             "range(known.shards_ever if known else 0, wanted.shards_ever)", "()",
             "tests/unit/engine/test_installation_settings.py"),
    Mutation(7, "a pass does not check where its schedules went", f"{ENGINE}/claiming.py",
             "moves |= self.execution.services.placer.check_moves(moves)[0]", "pass", SCHEDULES),
    Mutation(17, "a recovery does not check what it has deferred", f"{ENGINE}/recovery.py",
             "services.placer.check_moves({view.task_id: later})", "pass", RECOVERY),
    Mutation(7, "a pass does not check the stuck rows that it has deferred", f"{ENGINE}/stuck_rows.py",
             "placer.check_moves({task_id: later})", "pass", RECOVERY),
    Mutation(8, "our own rows pass the stream's filter", "template.yaml",
             '"anything-but":["bucket","cursor","reconcile","settings","tick"]',
             '"anything-but":["reconcile","settings","tick"]', TEMPLATE,
             unreachable="costs invocations only: the scheduler leaves our own rows alone"),
    Mutation(8, "the stream is silent about waiting rows that change", "template.yaml",
             '{"eventName":["MODIFY"],"dynamodb":{"NewImage":{"status":{"S":["scheduled","recurring"]}}}}',
             '{"eventName":["MODIFY"],"dynamodb":{"NewImage":{"status":{"S":["running"]}}}}', TEMPLATE),
    Mutation(9, "a claim does not ask for the bucket", f"{DOMAIN}/lifecycle.py",
             "conditions=(*state, Is(attr.TASK_DATE_TIME, str(bucket)), *_NORM", "conditions=(*state, *_NORM",
             LIFECYCLE),
    Mutation(10, "a last attempt is made beside others", f"{ENGINE}/recovery.py",
             "(RowView(row).is_last_attempt and not last_too) or not", "False or not", RECOVERY),
    Mutation(10, "last attempts are made at the same time", f"{ENGINE}/recovery.py",
             "            deferred += self.reclaim([alone.pop(0)], last_too=True)\n"
             "            execution.wait(until=execution.nothing_runs)\n",
             "            deferred += self.reclaim([alone.pop(0)], last_too=True)\n"
             "            execution.in_flight = {}\n", RECOVERY),
    Mutation(10, "expired leases run among the others", f"{ENGINE}/expired_leases.py",
             "        if self._not_started:\n            self._answered",
             "        if True:\n            self._answered", RECOVERY),
    Mutation(10, "an expired lease is handed out once in a chain", f"{ENGINE}/drain.py",
             "        self.polling.claim_left_behind(left_behind)\n", "", RECOVERY),
    Mutation(10, "a task with an expired lease is tried for ever", f"{ENGINE}/recovery.py",
             "if attempt >= view.retry_policy.maximum_attempts:", "if attempt > 10**6:", RECOVERY),
    Mutation(10, "a failure that was decided is executed again", f"{ENGINE}/recovery.py",
             "if view.error is not None:", "if False:", RECOVERY),
    Mutation(10, "reclaimed tasks are no progress", f"{ENGINE}/report.py",
             "if self.claimed + self.recovered > self.released:", "if self.claimed > self.released:", RECOVERY),
    Mutation(10, "a recovery that runs out of time does not go on", f"{ENGINE}/recovery.py",
             "if following is not None and (report.made_progress", "if False and (report.made_progress", RECOVERY),
    Mutation(10, "a lease is over at once, by whichever clock", f"{ENGINE}/claims.py",
             "now > lease_until + SKEW_MARGIN", "now > lease_until", CLAIMS,
             unreachable="none was found since recoveries reclaim"),
    Mutation(10, "a first attempt is left to its lease when it has ended", f"{ENGINE}/execution.py",
             "            results = self.recorder.record(attempts)",
             "            if attempts[0].task.attempt > 1:\n                results = self.recorder.record(attempts)"),
    Mutation(11, "a lease ends before its process does", f"{ENGINE}/claiming.py",
             "claim(entries, lease_until=self.budget.hard_end)",
             "claim(entries, lease_until=self.budget.stop_claiming)"),
    Mutation(11, "a process with a task in flight is kept", "functions/processor/app.py",
             "if processor.running:", "if False:", APP),
    Mutation(11, "a process is kept if its end can't be logged", "functions/processor/app.py",
             "    finally:\n        os._exit(1)", "    except ZeroDivisionError:\n        os._exit(1)", APP),
    Mutation(12, "tasks in flight are known by id", f"{ENGINE}/polling.py",
             "(task_id, bucket.minute) in self.execution.ids",
             "task_id in {known for known, _ in self.execution.ids}", DRAIN),
    Mutation(12, "a record does not ask for the claim's token", f"{DOMAIN}/lifecycle.py",
             "return (Is(attr.LEASE, task.lease), _CLAIMED[by])", "return (_CLAIMED[by],)", RECORD),
    Mutation(13, "a cancellation does not ask for the status", f"{DOMAIN}/lifecycle.py",
             "        set=terminal(Status.CANCELLED, now, retention_days),\n"
             "        conditions=as_read(row, attr.OUTCOME, attr.STATUS, attr.LEASE),",
             "        set=terminal(Status.CANCELLED, now, retention_days),\n        conditions=(),", LIFECYCLE),
    Mutation(13, "a redriven task keeps its run", f"{DOMAIN}/lifecycle.py", "attr.RUN: run,", "attr.RUN: run - 1,",
             LIFECYCLE),
    Mutation(2, "of an idle shard only the newest bucket is polled", f"{ENGINE}/idle_shards.py",
             "minutes = list(range(tick, first - 1, -1))", "minutes = [tick]", SHARDS),
    Mutation(4, "an idle shard's checkpoint is what its own write closes", f"{ENGINE}/idle_shards.py",
             "polled_through=max(closed.polled_through, tick),",
             "polled_through=max(closed.polled_through, tick), checkpoint=closed.closed_through,", SHARDS),
    Mutation(14, "shards whose invocation can't be started are left out", f"{ENGINE}/processor.py",
             "if started is not True]", "if False]", SHARDS),
    Mutation(14, "shards that were in use once are forgotten", f"{ENGINE}/installation_settings.py",
             "max(configured.shard_count, known.shards_ever if known else 1)", "configured.shard_count"),
    Mutation(15, "reconcile passes by what was drained without", f"{ENGINE}/diagnosis.py",
             "if bucket.minute <= drained.get(bucket.shard, -1):", "if False:", RECONCILE),
    Mutation(16, "a cursor is written whatever it is by then", f"{ENGINE}/cursor.py",
             "conditions=(Is(attr.VERSION, old.version),),", "conditions=(),", WATERMARK),
    Mutation(12, "a write that was sent again does not recognise itself", f"{ENGINE}/conditional_write.py",
             "if present is not None and change.is_shown_by(present):", "if False:", WRITES),
    Mutation(12, "a write without an answer is not looked up", f"{ENGINE}/conditional_write.py",
             "            unread.append(n)", "            pass", WRITES),
    Mutation(12, "a reclaim is not recognised by its token", f"{DOMAIN}/lifecycle.py",
             "return Is(attr.LEASE, token), Is(attr.STATUS, str(Status.RUNNING))",
             "return (Is(attr.STATUS, str(Status.COMPLETED)),)", WRITES),
    Mutation(12, "the end of a task by a recovery is taken for one's own", f"{DOMAIN}/lifecycle.py",
             "for name in (attr.OUTCOME, attr.FINISHED_AT)))", "for name in (attr.OUTCOME,)))", WRITES),
    Mutation(12, "a release that the table refuses is forgotten", f"{ENGINE}/execution.py",
             "                self.add_unreleased(claimed.task.task_id, str(claimed.task.lease))",
             "                pass", DRAIN),
    Mutation(12, "a claim of which nothing is known is not released", f"{ENGINE}/claims.py",
             "            self.add_unclear(task_id, token)", "            pass", RELEASING),
    Mutation(12, "a release order gives an attempt back to another's claim", f"{DOMAIN}/lifecycle.py",
             "if not view.is_running or view.lease != token or view.is_released or not view.attempt:",
             "if not view.is_running or view.is_released or not view.attempt:", RELEASING),
    Mutation(19, "a cursor's writer is not named", f"{ENGINE}/cursor.py",
             "mark=(Is(attr.VERSION, new.version), Is(attr.WRITTEN_BY, writer)),",
             "mark=(Is(attr.VERSION, new.version),),", SHARDS + " " + WATERMARK),
    Mutation(16, "S may go back", f"{ENGINE}/cursor.py",
             "drained_through=max(old.drained_through, new.drained_through)",
             "drained_through=new.drained_through", WATERMARK,
             unreachable="no caller ever offers an older S: it is a second line of defence, for callers to come"),
    Mutation(17, "a wake-up leaves a failure that waits for its letter where it is", f"{ENGINE}/record.py",
             "_MOVED = (*_WAITING, RecordResult.DEFERRED)", "_MOVED = _WAITING", WAKE_UPS,
             unreachable="a queue that refuses, a wake-up, and a tick that closes the bucket just then must meet"),
    Mutation(17, "a wake-up claims a task that runs", f"{DOMAIN}/lifecycle.py",
             "conditions=(*state, Is(attr.TASK", "conditions=(*(() if due else state), Is(attr.TASK", WAKE_UPS),
    Mutation(17, "a bucket of which a worker has a range counts as polled whole", f"{ENGINE}/polling.py",
             "if page.after is None and segment.is_whole and minute not in self.divided:", "if page.after is None:",
             WORKERS),
    Mutation(17, "a worker claims when its order is over", f"{ENGINE}/worker.py",
             "return self.clock() < self.until", "return True", WORKERS),
    Mutation(17, "the cursor doesn't list what is handed out", f"{ENGINE}/poll_window.py",
             "handed_out=tuple(self.handed_out)", "handed_out=c.handed_out", WORKERS),
    Mutation(18, "a wake-up claims a task whose instant is another by now", f"{ENGINE}/claims.py",
             "now=now, due=one.conditions)", "now=now)", WAKE_UPS),
    Mutation(18, "the due time counts while a retry waits", f"{DOMAIN}/due.py",
             "else (is_due, Absent(attr.NEXT_ATTEMPT_AT))", "else (is_due,)", WAKE_UPS),
    Mutation(18, "a retry keeps the instant that it had", f"{DOMAIN}/lifecycle.py",
             "            attr.NEXT_ATTEMPT_AT: _due(at),\n            attr.ATTEMPTS: _bounded",
             "            attr.ATTEMPTS: _bounded", f"{WAKE_UPS} {LIFECYCLE}"),
    Mutation(18, "a wake-up waits for its first task only", f"{ENGINE}/waking.py",
             "while waiting and waiting[0].at <= now and", "while waiting and", WAKE_UPS),
    Mutation(18, "a tick on time doesn't wait for its minute", f"{ENGINE}/processor.py",
             "while (wait := (order.at - self.clock()).total_seconds()) > 0:",
             "while (wait := (order.at - self.clock()).total_seconds()) > 60:", WAKE_UPS),
    Mutation(18, "an instant is rounded down", f"{DOMAIN}/instants.py",
             "timedelta(microseconds=-instant.microsecond % 1000)", "timedelta()", LIFECYCLE),
    Mutation(19, "each pass plans what others have planned", f"{ENGINE}/cursor.py",
             "range(max(tick, planned) + 1,", "range(tick + 1,", WAKE_UPS),
    Mutation(19, "a tick that finds its shard leased plans nothing", f"{ENGINE}/cursor.py",
             "return Acquired(None, to_plan)", "return Acquired(None)", WAKE_UPS, unreachable=COSTS_PUNCTUALITY),
    Mutation(19, "the scheduler wakes what a processor has deferred", f"{ENGINE}/assign.py",
             "    if before.is_running or before.is_unscheduled:\n        return False\n", "", WAKE_UPS,
             unreachable=COSTS_MESSAGES),
    Mutation(19, "a retry gets no wake-up", f"{ENGINE}/record.py",
             "if self.send_wake_ups is None or not changes:", "if True:", WAKE_UPS, unreachable=COSTS_PUNCTUALITY),
    Mutation(19, "records after a failed one send their wake-ups twice", f"{ENGINE}/assign.py",
             "if positions[key] < first]", "]", WAKE_UPS, unreachable=COSTS_MESSAGES),
    Mutation(OF_SCHEDULES, "a schedule moves on before its occurrence is written", f"{ENGINE}/recurring.py",
             "        self._make(list(cases.values()), closed_through, lease_until)\n"
             "        writes = self._move_on(list(cases.values()), closed_through)",
             "        writes = self._move_on(list(cases.values()), closed_through)\n"
             "        self._make(list(cases.values()), closed_through, lease_until)", RECURRING),
    Mutation(OF_SCHEDULES, "it moves on although its occurrence may not be there", f"{ENGINE}/recurring.py",
             "task_id not in there):\n                    case.failed = True",
             "task_id not in there):\n                    case.failed = False", RECURRING),
    Mutation(OF_SCHEDULES, "it moves on from wherever it is by then", f"{DOMAIN}/occurrences.py",
             "(attr.OUTCOME, attr.STATUS, *attr.DEFINITION, *attr.POSITION)", "(attr.OUTCOME,)", RECURRING),
    Mutation(OF_SCHEDULES, "ids of occurrences go without the revision", f"{DOMAIN}/schedule.py",
             'f"{self.schedule_id}#{self.revision}#{', 'f"{self.schedule_id}#1#{', RECURRING),
    Mutation(OF_SCHEDULES, "a second process runs an occurrence too", f"{ENGINE}/recurring.py",
             "if view.lease == row[attr.LEASE]:", "if not is_terminal(present):", RECURRING),
    Mutation(OF_SCHEDULES, "a tick does not ask which occurrences exist", f"{ENGINE}/recurring.py",
             "        if leaving_out:\n            there = self.store.get_many(\n",
             "        if not leaving_out:\n            there = self.store.get_many(\n", RECURRING),
    Mutation(OF_SCHEDULES, "S does not wait for another tick's occurrences", f"{ENGINE}/poll_window.py",
             "        if self.others_until is not None:\n", "        if False:\n",
             RECURRING,
             unreachable="an index that lags twice, and a process that is frozen in between must meet: none was found"),
    Mutation(2, "keys that were left unprocessed are not asked for again", TABLE,
             "                if not keys:\n                    break\n", "                break\n", STORE),
    Mutation(2, "what could not be read in six tries is not there", TABLE,
             'raise StoreError(f"cannot read rows: {len(keys)}', 'StoreError(f"cannot read rows: {len(keys)}', STORE),
    Mutation(2, "buckets after the checkpoint wait for their final look", f"{ENGINE}/poll_window.py",
             "min(c.polled_through, c.checkpoint, c.closed_through", "min(c.polled_through, c.closed_through",
             WATERMARK),
    Mutation(3, "a row that could not be normalised does not hold S", f"{ENGINE}/claims.py",
             "            return Contended(stuck=True)\n        return Contended()",
             "            return Contended(stuck=True)\n        return Ineligible()", CLAIMS),
    Mutation(3, "a released row that can't be claimed does not hold S", f"{ENGINE}/claims.py",
             "            return LeaseExpired(task_id)\n        return verdict or Contended()",
             "            return Ineligible()\n        return verdict or Contended()", CLAIMS),
    Mutation(3, "a row is put off before its mover has ended", f"{ENGINE}/stuck_rows.py",
             "max(now + deferral(RowView(row).deferrals), hard_end + SKEW_MARGIN)",
             "now + deferral(RowView(row).deferrals)", RECOVERY),
    Mutation(3, "a row is put off although it was repaired", f"{ENGINE}/stuck_rows.py",
             "if row is None or not is_stuck(row, bucket, placer, now):", "if row is None:", RECOVERY),
    Mutation(3, "a released task does not hold its bucket back", f"{ENGINE}/claiming.py",
             "self.window.end_in_flight(place.minute, is_open=True)",
             "self.window.end_in_flight(place.minute, is_open=False)", DRAIN),
    Mutation(12, "claims under way at the end are not waited for", f"{ENGINE}/execution.py",
             "self.nothing_runs() and not self.claiming, end", "self.nothing_runs(), end", DRAIN),
    Mutation(12, "a failure is deferred under another lease", f"{DOMAIN}/lifecycle.py",
             "short(error),\n        },\n"
             "        conditions=as_read(row, attr.OUTCOME, attr.STATUS, attr.LEASE, attr.LEASE_UNTIL),",
             "short(error),\n        },\n        conditions=as_read(row, attr.OUTCOME, attr.STATUS),", LIFECYCLE),
    Mutation(12, "another lease than the one that was read is ended", f"{DOMAIN}/lifecycle.py",
             "format_instant(now)},\n"
             "        conditions=as_read(row, attr.OUTCOME, attr.STATUS, attr.LEASE, attr.LEASE_UNTIL),",
             "format_instant(now)},\n        conditions=as_read(row, attr.OUTCOME, attr.STATUS),", LIFECYCLE),
    Mutation(11, "the last records may take until the process is killed", f"{ENGINE}/execution.py",
             "end = self.budget.hard_end - self._spare", "end = self.budget.hard_end", DRAIN),
    Mutation(5, "a row is read as it once was", TABLE,
             "get_item(task_id, consistent_read=True)", "get_item(task_id, consistent_read=False)", STORE),
    Mutation(5, "rows are read as they once were", TABLE,
             '"ConsistentRead": consistent}', '"ConsistentRead": False}', STORE),
    Mutation(15, "reconcile reads the table as it once was", TABLE,
             "                consistent_read=True,\n", "                consistent_read=False,\n", STORE),
    Mutation(10, "a recovery takes a task of another bucket", f"{ENGINE}/recovery.py",
             "view.is_open_in(bucket) and", '"outcome" not in row and', RECOVERY),
    Mutation(11, "a task is begun after its pass has ended", f"{ENGINE}/task_pool.py",
             "                if self._closed:\n                    continue\n", "", POOLS),
    Mutation(OF_SCHEDULES, "occurrences after the checkpoint put it off", f"{ENGINE}/poll_window.py",
             " and self.written_from <= new.checkpoint:", ":", WATERMARK),
    Mutation(OF_SCHEDULES, "openUntil of another pass is overwritten", f"{ENGINE}/shard_lease.py",
             "until if others is None else max(until, others)", "until", WATERMARK),
    Mutation(OF_SCHEDULES, "openUntil of another pass is taken back", f"{ENGINE}/poll_window.py",
             "open_until=self.others_until)", "open_until=None)", WATERMARK),
    Mutation(OF_SCHEDULES, "a schedule that could not be normalised does not hold S", f"{ENGINE}/recurring.py",
             "                    return Made(verdict=Contended())\n                row",
             "                    return Made(verdict=Ineligible())\n                row", SCHEDULES),
    Mutation(OF_SCHEDULES, "a pass makes occurrences though its shard is lost", f"{ENGINE}/claiming.py",
             "if not self.right.keep_open(self.budget.hard_end):",
             "if self.right.keep_open(self.budget.hard_end) is None:", SCHEDULES),
    Mutation(OF_SCHEDULES, "a malformed task in a schedule's place does not hold S", f"{ENGINE}/claiming.py",
             "is_open=result is RecordResult.UNRECORDED)", "is_open=False)", SCHEDULES),
    Mutation(16, "throttled statements are not sent again", TABLE,
             "                        again.append(n)\n", "                        pass\n", STORE),
    Mutation(OF_SCHEDULES, "an occurrence that a client made counts as the one before", f"{DOMAIN}/occurrence_plan.py",
             "if nominal not in self.there or not self.active or self.schedule.overlap is Overlap.ALLOW:", "if True:",
             SCHEDULES),
    Mutation(OF_SCHEDULES, "S does not wait for what is still being claimed", f"{ENGINE}/polling.py",
             "self.window.add_in_flight(bucket.minute, len(found.all))",
             "self.window.add_in_flight(bucket.minute, 0)", f"{DRAIN} {WATERMARK}"),
    Mutation(OF_SCHEDULES, "catchUp none makes the latest all the same", f"{DOMAIN}/occurrence_plan.py",
             "(catch_up is not CatchUp.NONE and is_latest)", "is_latest", RECURRING),
    Mutation(OF_SCHEDULES, "catchUp latest makes all", f"{DOMAIN}/occurrence_plan.py",
             "(catch_up is CatchUp.ALL and not", "(catch_up is not CatchUp.NONE and not", RECURRING),
    Mutation(OF_SCHEDULES, "occurrences overlap whatever overlap says", f"{DOMAIN}/occurrence_plan.py",
             "elif not self.active or self.schedule.overlap is Overlap.ALLOW:", "elif True:", RECURRING),
    Mutation(OF_SCHEDULES, "the buffered occurrence is forgotten", f"{DOMAIN}/occurrences.py",
             "values[attr.BUFFERED_OCCURRENCE_AT] = format_instant(plan.buffered)",
             "remove.append(attr.BUFFERED_OCCURRENCE_AT)", RECURRING),
    Mutation(OF_SCHEDULES, "missed occurrences are not recorded", f"{DOMAIN}/occurrences.py",
             "    if plan.missed:\n", "    if not plan:\n", RECURRING),
    Mutation(OF_SCHEDULES, "a pause drops what is due", f"{DOMAIN}/recurrence.py",
             "return schedule.state is ScheduleState.ENABLED or schedule.defined != schedule.definition or _before",
             "return schedule.state is ScheduleState.ENABLED or schedule.defined is None or _before", RECURRING),
    Mutation(OF_SCHEDULES, "a paused schedule goes on", f"{DOMAIN}/schedule.py",
             "return self.state is ScheduleState.DISABLED and (self.defined_at is None or nominal > self.defined_at)",
             "return self.defined_at is None", RECURRING),
    Mutation(OF_SCHEDULES, "the first late tick drops what was due before a pause", f"{DOMAIN}/occurrences.py",
             "is_paused = schedule.state is ScheduleState.DISABLED and (following is None or "
             "schedule.is_paused_at(following))", "is_paused = schedule.state is ScheduleState.DISABLED", RECURRING),
    Mutation(OF_SCHEDULES, "an edit keeps only the first due occurrence", f"{DOMAIN}/recurrence.py",
             "if due_before := _due_before(schedule, now):", "if due_before := schedule.due_before:", RECURRING),
    Mutation(OF_SCHEDULES, "what is overdue is forgotten unreported", f"{ENGINE}/recurring.py",
             "        if overdue:\n            self.report_overdue(overdue)\n", "", SCHEDULES),
    Mutation(OF_SCHEDULES, "a schedule waits for its next occurrence, whatever is awaited", f"{DOMAIN}/occurrences.py",
             "awaited, grid))] if awaited else []", "awaited, grid))] if awaited and plan.more else []", SCHEDULES),
    Mutation(OF_SCHEDULES, "a pause forgets what is awaited", f"{DOMAIN}/recurrence.py",
             "if not pending and (not schedule.awaited or schedule.bucket is None):", "if not pending:", SCHEDULES),
    Mutation(OF_SCHEDULES, "an edit puts a schedule behind a deadline", f"{DOMAIN}/recurrence.py",
             "            if schedule.awaited:\n                values[attr.TASK_DATE_TIME]",
             "            if schedule.awaited and paused:\n                values[attr.TASK_DATE_TIME]", SCHEDULES),
    Mutation(OF_SCHEDULES, "an occurrence that a dead tick made counts as late", f"{ENGINE}/recurring.py",
             "        case.add_task(run, present)\n", "        case.made.append(run)\n", SCHEDULES,
             unreachable="none was found: a tick that can't move a schedule on tries again within its pass"),
)  # fmt: skip


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="dynatick-mutations-") as folder:
        copy = Path(folder)
        for name in COPIED:
            copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            copied(ROOT / name, copy / name)
        # A folder's files side by side: pytest 9.1 loses the folder's fixtures when it comes back to it.
        failing = failures(copy, f"{RULES} {RECURRING} {TEMPLATE}")
        if failing:
            print(f"without any mutation these fail already: {', '.join(failing)}", file=sys.stderr)
            return 1
        unnoticed = [mutation for mutation in MUTATIONS if not report(mutation, failing_of(mutation, copy))]
    missing = set(range(1, 20)) - {mutation.rule for mutation in MUTATIONS}
    noticed = len(MUTATIONS) - len(unnoticed)
    print(f"{noticed} of {len(MUTATIONS)} mutations noticed, of {19 - len(missing)} rules and of schedules")
    return 1 if unnoticed or missing else 0


def failing_of(mutation: Mutation, copy: Path) -> list[str] | None:
    """The tests that fail for a mutation; None if its text is not there, or not only once."""
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    mutated = mutation.applied_to(text)
    if mutated is None:
        return None
    path.write_text(mutated, encoding="utf-8")
    try:
        return failures(copy, mutation.tests)
    finally:
        path.write_text(text, encoding="utf-8")


def failures(copy: Path, tests: str) -> list[str]:
    """The names of the tests that fail in the copy."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=30", *tests.split()],
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(copy / "shared"), str(copy / "stack")]),
            "PYTHONDONTWRITEBYTECODE": "1",  # a file may be changed twice within a second
        },
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(?:FAILED|ERROR) \S+?::(\w+)", ran.stdout, re.MULTILINE)
    if ran.returncode not in (0, 1) or (ran.returncode == 1) != bool(found):
        raise SystemExit(f"pytest could not run:\n{ran.stdout}\n{ran.stderr}")
    return list(dict.fromkeys(found))


def report(mutation: Mutation, failing: list[str] | None) -> bool:
    """Prints a line of the table. Whether the mutation was noticed."""
    if failing is None:
        verdict = f"ITS TEXT IS NOT IN {mutation.file}, OR NOT ONLY ONCE"
    elif not failing:
        verdict = "NO TEST FAILS"
    else:
        # Best shown is the test that is named after the rule.
        own = [name for name in failing if name.startswith(f"test_rule_{mutation.rule:02d}_")]
        more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        verdict = f"{(own or failing)[0]}{more}"
    print(f"{mutation.rule or '+':>2}  {mutation.what:<54}  {verdict}", flush=True)
    return bool(failing)


if __name__ == "__main__":
    sys.exit(main())
