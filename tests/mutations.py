"""The rules of the protocol, the guards that keep them, and what keeps the runs of schedules, taken out one by
one: each time some test must fail (``make mutations``).

Each mutation changes one function in a temporary copy of the package. This prints the first test that fails for it,
and ends with 1 if some mutation goes unnoticed, or can no longer be made: then it has to be written anew.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from tests.mutation import ROOT, CannotMutate, Mutation

COPIED = ("README.md", "shared", "stack", "functions", "tests", "template.yaml", "pyproject.toml", "docs")
RULES = "tests/unit/engine/test_rules.py"
TEMPLATE = "tests/unit/test_template.py"
WATERMARK = "tests/unit/engine/test_watermark.py"
RECOVERY = "tests/unit/engine/test_recovery.py"
DRAIN = "tests/unit/engine/test_drain.py"
APP = "tests/unit/test_processor_app.py"
STORE = "tests/unit/store/test_dynamodb.py"
LIFECYCLE = "tests/unit/domain/test_lifecycle.py"
CLAIMS = "tests/unit/engine/test_claims.py"
RECORD = "tests/unit/engine/test_record.py"
POOLS = "tests/unit/engine/test_pools.py"
PLACEMENT = "tests/unit/engine/test_placement.py"
SCHEDULES = "tests/unit/engine/test_schedules.py"
SETTINGS = "tests/unit/engine/test_settings.py"
WAKE_UPS = "tests/unit/engine/test_wake_ups.py"
WORKERS = "tests/unit/engine/test_workers.py"
HAND_OUT = "tests/unit/engine/test_hand_out.py"
SHARDS = "tests/unit/engine/test_shards.py"
RECONCILE = "tests/unit/engine/test_reconcile.py"
WRITES = "tests/unit/engine/test_conditional_write.py"
RELEASING = "tests/unit/engine/test_releasing.py"
EXISTING = "tests/unit/client/test_if_exists.py"
PACKS = "tests/unit/engine/test_packs.py"
BATCHES = "tests/unit/client/test_batches.py"
THEN = "tests/unit/engine/test_batches.py"
COMMITS = "tests/unit/engine/test_commit.py"
COMPLETIONS = "tests/unit/engine/test_completions.py"
FOLLOW_UPS = "tests/unit/actions/test_follow_ups.py"
RECURRING = "tests/unit/domain/test_recurrence.py tests/unit/engine/test_schedules.py"
OVERDUE = "tests/unit/domain/test_overdue.py"
MANY = "tests/unit/client/test_bulk_change.py"
DECLARED = "tests/unit/client/test_schedule_sync.py"
TURNS = "tests/unit/engine/test_turns.py"
IN_TURN = "tests/unit/engine/test_packs_in_turn.py"
RATES = "tests/unit/actions/test_rate_limit.py"
TO_THE_SECOND = "tests/unit/engine/test_keys_to_the_second.py"
PAUSED = "tests/unit/engine/test_paused_actions.py"
OF_SCHEDULES = 0
OF_RATES = -1
Change = tuple[Mutation, Path, str]
_WITHOUT = ("-p", "no:cacheprovider", "-p", "no:schemathesis")  # plugins: to start one takes a second each time

MUTATIONS = (
    # -- closing and polling -------------------------------------------------------------------------------------------
    Mutation(1, "a pass closes nothing", "engine:close",
             "max(cursor.closed_through, tick)", "cursor.closed_through", RULES),
    Mutation(2, "only minutes of the present grid are polled", "Window.minutes_to_poll",
             "is_final or minute > skip_through",
             "minute % self.rules.grid.tick_minutes == 0 and (is_final or minute > skip_through)", WATERMARK),
    Mutation(2, "of an idle shard only the newest bucket is polled", "engine:minutes_to_poll",
             "range(tick, first - 1, -1)", "[tick]", SHARDS),
    Mutation(3, "any poll is final, however late the index", "Window.final_from",
             "quiet_from + self.rules.index_settled_after", "quiet_from", WATERMARK),
    Mutation(3, "a contended row does not hold its bucket back", "Poll.is_open",
             "", "return not self.complete or self.in_flight > 0", RULES),
    Mutation(3, "an attempt that was not recorded does not hold its bucket back", "Claiming._recorded",
             "self.window.end_in_flight(...)", "self.window.end_in_flight(place.minute, is_open=False)", WATERMARK),
    Mutation(3, "entries of a claim that failed do not hold their bucket back", "Claiming.end_unclaimed",
             "self.window.end_in_flight(...)", "self.window.end_in_flight(bucket.minute, is_open=False)", WATERMARK),
    Mutation(3, "a released task does not hold its bucket back", "Claiming._released",
             "self.window.end_in_flight(...)", "self.window.end_in_flight(place.minute, is_open=False)", DRAIN),
    Mutation(3, "what is still being claimed does not hold its bucket back", "Polling.open_entries",
             "self.window.add_in_flight(...)", "", DRAIN),
    Mutation(3, "a bucket whose packs are still to be read again counts as polled whole", "Polling._claim_page",
             "batch.packs_from is None", "True", PACKS),
    Mutation(3, "occurrences that another process runs do not hold their bucket back", "Claiming._start_occurrences",
             "self.window.add_contended(...)", "", WATERMARK),
    Mutation(3, "the time of a poll is read after its query", "PageReader._poll",
             "partial(read.finish, began, page, error)", "partial(read.finish, services.clock(), page, error)",
             WATERMARK),
    Mutation(3, "a row that can't be finished is never deferred", "Window.stuck_polls",
             "len(poll.stuck) == poll.contended", "False", RECOVERY),
    Mutation(3, "a failure whose letter is refused keeps its bucket", "Recorder.fail",
             "self._deferral(...)", "failure.change", RECOVERY),
    Mutation(3, "a row is deferred into a tick at which its mover may still write", "engine:_defer",
             "max(now + deferral(RowView(row).deferrals), hard_end + SKEW_MARGIN)",
             "now + deferral(RowView(row).deferrals)", RECOVERY),
    Mutation(3, "what waits while its action is paused does not hold its bucket back", "Claiming.withhold",
             "self.window.add_contended(...)", "", PAUSED),
    Mutation(4, "checkpointAt is read before the closing write", "engine:drain",
             "Window(acquired.cursor, services.rules, closed_at=services.clock())",
             "Window(acquired.cursor, services.rules, closed_at=started)", RULES),
    Mutation(4, "every pass sets a new checkpoint", "Window.progress",
             "drained >= c.checkpoint", "True", RULES),
    Mutation(4, "the checkpoint stays though another tick has closed more", "ShardLease._take",
             "self.window.cursor, self.window.closed_at = present, self.clock()", "self.window.cursor = present",
             WATERMARK),
    Mutation(4, "occurrences of a pass leave the checkpoint", "Window.progress",
             "new = replace(new, checkpoint_at=max(new.checkpoint_at, self.written_at))", "", WATERMARK),
    Mutation(4, "openUntil is taken back while writes are under way", "Window.final_cursor",
             "self.opened and not self.writing", "self.opened", WATERMARK),
    Mutation(4, "a long poll keeps none of its progress", "ShardLease.renew",
             "self.window.progress()", "self.window.cursor", DRAIN),
    Mutation(4, "a pass whose end write was sent again takes itself for overtaken", "engine:save",
             "write(store, change)", "store.write(change)", DRAIN),
    # -- placement -----------------------------------------------------------------------------------------------------
    Mutation(5, "a newcomer to a closed bucket is left there", "Placer._is_open", "", "return True", RULES),
    Mutation(5, "a bucket is compared with the drained watermark", "Placer._is_open",
             "read_cursor(self.store, bucket.shard, self.clock()).closed_through",
             "read_cursor(self.store, bucket.shard, self.clock()).drained_through", RULES),
    Mutation(5, "a move has no conditions", "domain:move",
             "as_read(row, attr.OUTCOME, *attr.TIME_INPUTS)", "()", PLACEMENT),
    Mutation(5, "a row is read as it once was", "DynamoStore.get",
             "self._requests.get_item(task_id, consistent_read=True)",
             "self._requests.get_item(task_id, consistent_read=False)", STORE),
    Mutation(6, "running rows are not moved", "Placer.place",
             "is_own_row(task_id)", 'is_own_row(task_id) or row.get("status") == "running"', RULES),
    Mutation(7, "a move is not checked again", "Placer.place",
             "row = self._after(row, result)", "return self._after(row, result)", RULES),
    Mutation(7, "a pass does not check what it has moved", "Placer.check_moves",
             "not self._is_open(bucket, closed)", "False", RECORD),
    Mutation(7, "a pass does not check where its schedules went", "Claiming._make_occurrences_now",
             "moves |= self.execution.services.placer.check_moves(moves)[0]", "", SCHEDULES),
    Mutation(7, "a pass does not check the rows that it has deferred", "Placer.defer",
             "self.check_moves(...)", "", RECOVERY),
    Mutation(7, "a pass does not check what it has moved because its action is paused", "engine:_defer_waiting",
             "services.placer.check_moves(...)", "", PAUSED),
    Mutation(8, "the stream is silent about waiting rows that change", "template.yaml",
             '{"eventName":["MODIFY"],"dynamodb":{"NewImage":{"status":{"S":["scheduled","recurring","waiting"]}}}}',
             '{"eventName":["MODIFY"],"dynamodb":{"NewImage":{"status":{"S":["running"]}}}}', TEMPLATE),
    # -- claims and their records --------------------------------------------------------------------------------------
    Mutation(9, "a claim does not ask for the bucket", "domain:claim",
             "Is(attr.TASK_DATE_TIME, str(bucket))", "*()", LIFECYCLE),
    Mutation(10, "a last attempt is made beside others", "Recovery._may_begin",
             "RowView(row).is_last_attempt and not last_too", "False", RECOVERY),
    Mutation(10, "last attempts are made at the same time", "Recovery.work",
             "deferred += self.reclaim(...)\nexecution.wait(until=execution.nothing_runs)",
             "deferred += self.reclaim([alone.pop(0)], last_too=True)\nexecution.in_flight = {}", RECOVERY),
    Mutation(10, "what is overdue is taken for what has killed its process", "RowView.is_last_attempt",
             "self.is_pack or self.awaits_completion", "self.is_pack", RECOVERY),
    Mutation(10, "what is overdue shares a recovery with what has killed its process", "engine:orders_for",
             "one.is_overdue", "False", RECOVERY),
    Mutation(10, "expired leases run among the others", "ExpiredLeases._start",
             "self._not_started", "True", RECOVERY),
    Mutation(10, "an expired lease gets one recovery in a chain of continuations", "_Pass.work",
             "self.polling.claim_left_behind(...)", "", RECOVERY),
    Mutation(10, "a task with an expired lease is tried for ever", "plan_recovery",
             "attempt >= view.retry_policy.maximum_attempts", "attempt > 10**6", RECOVERY),
    Mutation(10, "a task of any age is attempted again after its process died", "plan_recovery",
             "_is_too_old(row)", "False", RECOVERY),
    Mutation(10, "a failure that was decided is executed again", "plan_recovery",
             "view.error is not None", "False", RECOVERY),
    Mutation(10, "a recovery that runs out of time does not go on", "engine:recover",
             "following is not None", "False", RECOVERY),
    Mutation(10, "a lease is over at once, by whichever clock", "lease_is_over",
             "lease_until + SKEW_MARGIN", "lease_until", CLAIMS,
             unreachable="none was found since recoveries reclaim"),
    Mutation(10, "a first attempt is left to its lease when it has ended", "Execution._flush",
             "partial(self._record, attempts)",
             "partial(self._record, attempts) if attempts[0].task.attempt > 1 else "
             "partial(tuple, [RecordResult.UNRECORDED] * len(attempts))", RULES),
    Mutation(11, "a lease ends before its process does", "Claiming._claim",
             "self.budget.hard_end", "self.budget.stop_claiming", RULES),
    Mutation(11, "a process with a task in flight is kept", "processor:handler",
             "processor.running", "False", APP),
    Mutation(11, "a process is kept if its end can't be logged", "processor:end_process",
             "os._exit(1)", "sys.exc_info()[1] is None and os._exit(1)", APP),
    Mutation(11, "a task is begun after its pass has ended", "TaskPool._work",
             "self._closed", "False", POOLS),
    Mutation(12, "tasks in flight are known by id", "Polling.open_entries",
             "(task_id, bucket.minute) in self.execution.ids",
             "task_id in {known for known, _ in self.execution.ids}", DRAIN),
    Mutation(12, "a record does not ask for the claim's token", "domain:_by_holder",
             "Is(attr.LEASE, task.lease)", "*()", RECORD),
    Mutation(12, "a write that was sent again does not recognise itself", "engine:_judged",
             "change.is_shown_by(present)", "False", WRITES),
    Mutation(12, "a write without an answer is not looked up", "engine:_settled",
             "unread.append(n)", "", WRITES),
    Mutation(12, "an insert that broke off takes another's task for its own", "client:compose",
             "{**row, attr.INSERT_TOKEN: uuid.uuid4().hex}", "row", "tests/unit/client/test_insert.py"),
    Mutation(12, "a release that the table refuses is forgotten", "Execution._release",
             "self.add_unreleased(...)", "", DRAIN),
    Mutation(12, "a claim of which nothing is known is not released", "Claimer._note_unclear",
             "self.add_unclear(...)", "", RELEASING),
    Mutation(12, "a release gives an attempt back to another's claim", "domain:_release",
             '(Is(attr.LEASE, token), _CLAIMED["release"], Is(attr.ATTEMPT, attempt))', '(_CLAIMED["release"],)',
             RELEASING),
    Mutation(12, "what was claimed begins although its action is paused", "Execution.is_held_up",
             "self.is_paused() or self.is_action_paused(task.action)", "self.is_paused()", PAUSED),
    Mutation(12, "a second pause replaces the first", "engine:pause",
             '(Is(attr.STATUS, "settings"), Absent(attr.PAUSED))', '(Is(attr.STATUS, "settings"),)', SETTINGS),
    Mutation(12, "resume ends whichever pause there is", "engine:resume",
             "as_read(there, attr.PAUSED, attr.PAUSES)", "()", SETTINGS),
    Mutation(12, "claims under way at the end are not waited for", "Execution.finish",
             "not self.claiming", "True", DRAIN),
    Mutation(13, "a cancellation does not ask for the status", "domain:cancel",
             "_unclaimed(row)", "()", LIFECYCLE),
    Mutation(13, "what was released is changed though it is claimed", "domain:_unclaimed",
             "(attr.LEASE_UNTIL,) if RowView(row).is_released else ()", "()", LIFECYCLE),
    Mutation(13, "a restore does not ask for the status", "domain:restore",
             "as_read(row, attr.STATUS, attr.OUTCOME, attr.RUN, attr.FINISHED_AT)", "()", LIFECYCLE),
    Mutation(13, "a restored task is attempted beyond its policy", "client:_require_attempts_left",
             "view.attempts_made >= view.retry_policy.maximum_attempts", "False", COMPLETIONS),
    Mutation(13, "a pack of which nothing is left runs again", "client:_require_members_left",
             "not tasks_changed(row)", "False", BATCHES),
    Mutation(13, "a batch that has ended does not count what is started anew", "client:reopen_batches",
             "is_terminal(row) and attr.OUTCOME in change.remove", "False", BATCHES),
    Mutation(13, "a redriven task keeps its run", "client:next_run",
             "", "return int(row.get(attr.RUN, 1))", "tests/unit/client/test_task_update.py"),
    Mutation(13, "a running task is replaced", "client:require",
             "state not in allowed or (state in TERMINAL and not is_terminal(row))",
             "state in TERMINAL and not is_terminal(row)", EXISTING),
    Mutation(13, "a replacement does not ask whether the row is still the same task", "domain:replace_definition",
             "(*moved.conditions, *as_read(row, attr.CREATED_AT, attr.REPLACED_AT, attr.ATTEMPT))", "()", EXISTING),
    Mutation(13, "a replacement recognises only a row that still waits", "domain:replace_definition",
             "tuple(...)", "()", EXISTING),
    Mutation(13, "a replaced task keeps its run", "domain:replace_definition",
             "values |= {attr.RUN: run, attr.ATTEMPT: 0}", "values |= {attr.ATTEMPT: 0}", EXISTING),
    Mutation(13, "a postponement does not ask whether another postponed the task", "domain:postpone",
             "(*moved.conditions, *as_read(row, attr.CREATED_AT, attr.FIRST_DUE_AT, attr.NEXT_ATTEMPT_AT))", "()",
             EXISTING),
    Mutation(13, "a task is postponed to an earlier time", "client:postponed",
             "due_at <= max(own, now)", "False", EXISTING),
    Mutation(13, "each postponement counts from the latest time", "client:postponed",
             "instant_or_none(row.get(attr.FIRST_DUE_AT))", "None", EXISTING),
    Mutation(13, "what is shifted to before its bucket is shifted again", "Rescheduling.is_done",
             "RowView(row).task_id in self._back", "False", MANY),
    # -- packs of a batch ----------------------------------------------------------------------------------------------
    Mutation(20, "a member that did not complete counts as done", "Packs.ended",
             "not isinstance(attempted.outcome, Done)", "False", PACKS),
    Mutation(20, "a member's row that may not be there counts as written", "Packs.recorded",
             "result is not RecordResult.UNRECORDED", "True", PACKS),
    Mutation(20, "a member whose row gets no answer is lost with its pack", "Packs.recorded",
             "isinstance(attempted.outcome, Unclear)", "True", PACKS,
             unreachable="costs attempts only: a recovery runs what was lost"),
    Mutation(20, "a pack waits for its turn again before its member has a row", "Packs.release_idle",
             "if one.unclear:\n    self._give_rows(one)\n    continue", "", IN_TURN,
             unreachable="costs repetitions only: delivery is at least once"),
    Mutation(20, "a member that still runs as its process ends is lost with its pack", "Execution.finish",
             "self.packs.part()", "", PACKS, unreachable="no handler of the model runs on as its process ends"),
    Mutation(12, "a release in another invocation forgets which members have ended", "engine:_release",
             "Pack.of(row) if ended else None", "None", RELEASING,
             unreachable="costs repetitions only: delivery is at least once"),
    Mutation(12, "a Commit hits another process's claim", "domain:_end",
             "_by_holder(task, by)", "()", COMMITS),
    Mutation(12, "a Commit that was cancelled completes its task", "Recorder._commit",
             "isinstance(result, Cancelled)", "False", COMMITS),
    Mutation(20, "a member that commits is only a bit of its pack", "Packs.ended",
             "attempted.outcome.items", "()", COMMITS),
    Mutation(20, "another task's row counts as a member's", "_is_extracted",
             "is_row_of_member(present, row[attr.BATCH_ID], row.get(attr.CREATED_AT))", "True", PACKS),
    Mutation(20, "a member that can have no row ends without a letter", "_has_no_row",
             "isinstance(row, MemberRow)", "False", PACKS),
    Mutation(22, "a member is changed whatever its pack is by then", "Member.noting",
             "as_read(self.row, *_AS_READ)", "()", BATCHES),
    Mutation(22, "a release that comes twice undoes the change of a member", "domain:_release",
             '(Is(attr.LEASE, token), _CLAIMED["release"], Is(attr.ATTEMPT, attempt))',
             '(Is(attr.LEASE, token), _CLAIMED["release"])', BATCHES),
    Mutation(19, "a released task that is rescheduled gets no wake-up", "engine:_is_new_time",
             "RowView(new).is_scheduled", "False", WAKE_UPS,
             unreachable="costs punctuality only: the tick runs what no wake-up runs"),
    Mutation(22, "a member that has ended is changed while its pack runs", "_require_pack_at_rest",
             "state_of(member.row) == Status.RUNNING", "False", BATCHES),
    Mutation(21, "a pack whose lease expired is run again", "Packs._begin_next",
             "one.claimed.task.attempt > 1", "False", PACKS),
    Mutation(10, "the members of a lost pack are tried again beside others", "Recorder._plan",
             "attempt.outcome.is_lost", "False", PACKS),
    Mutation(21, "a pack fails when its attempts are used up", "plan_recovery",
             "not view.is_pack", "True", PACKS),
    Mutation(12, "a completion hits another claim, or what has ended", "domain:_by_token",
             "as_read(row, *_OF_CLAIM)", "()", LIFECYCLE),
    Mutation(12, "a forged token is taken", "Completions._settle",
             "not token.is_of(row)", "False", COMPLETIONS),
    Mutation(12, "a token made of a task's id is taken before the first claim", "CompletionToken.is_of",
             "isinstance(lease, str)", "True", COMPLETIONS),
    Mutation(10, "what has failed by its token is completed", "client:_require_open",
             "view.is_running and view.error is None", "view.is_running", COMPLETIONS),
    Mutation(12, "a failure that had no effect is answered as done", "client:_has_failed",
             "retry and any(ended.items() <= last.items() for last in task.attempts[-1:])", "True", COMPLETIONS),
    Mutation(10, "a released task counts as one whose process died", "plan_recovery",
             "if view.is_released and attr.OUTCOME not in row:\n    return claim(...)", "", RECOVERY),
    Mutation(10, "a completion that never came leaves no trace of it", "overdue",
             "not view.awaits_completion", "True", COMPLETIONS),
    Mutation(7, "handing over is not checked again", "Recorder._check_moves",
             "result in _MOVED", "result in _WOKEN", RECORD),
    Mutation(7, "a move that could not be checked does not hold back the bucket that it has left", "engine:_unchecked",
             "result in _MOVED", "False", RECORD),
    Mutation(20, "a pack is given up for a move of its member that could not be checked", "engine:_unchecked",
             "not isinstance(row, MemberRow)", "True", PACKS),
    Mutation(13, "a repeated attempt inserts follow-ups of its own", "HandlerContext.schedule",
             "follow_up_id(self.idempotency_key, name)",
             'follow_up_id(f"{self.idempotency_key}-{self.attempt}", name)', FOLLOW_UPS),
    Mutation(13, "another task's row counts as a follow-up", "TaskClient.insert_task",
             "present.get(attr.FOLLOW_UP_OF) != follow_up_of", "False", FOLLOW_UPS),
    Mutation(20, "packs of an earlier batch are taken for those of this one", "Loader._is_own",
             "row.get(attr.CREATED_AT) == format_instant(self.created_at)", "True", BATCHES),
    Mutation(20, "any task is taken for what follows a batch", "engine:_is_then",
             "row[attr.FOLLOW_UP_OF] == task.task_id", "True", THEN),
    Mutation(20, "what followed an earlier batch is taken for what follows this one", "engine:_is_then",
             "created_at < task.created_at - SKEW_MARGIN", "False", THEN),
    Mutation(20, "what has followed a batch and has expired follows it again", "WithBatches._has_inserted_then",
             "", "return False", THEN),
    Mutation(20, "a redriven batch forgets that what follows it was inserted", "domain:redrive",
             "is_batch and name == attr.FOLLOW_UPS", "False", THEN),
    Mutation(12, "a checkpoint hits another process's claim", "checkpoint",
             '_by_holder(task, "release")', "()", PACKS),
    Mutation(12, "a pack goes on that another process has", "Packs._checked",
             "not isinstance(result, (Written, Unknown))", "False", PACKS),
    Mutation(21, "what could not be kept counts as kept", "Packs._unchecked",
             "one.is_behind or not one.is_lost", "one.is_behind", PACKS),
    Mutation(12, "a release forgets which members are done", "Packs._release",
             "one.done or one.extracted", "False", PACKS),

    # -- shards, cursors and the reconcile -----------------------------------------------------------------------------
    Mutation(14, "a new shard has no cursor until a tick needs it", "publish_settings",
             "range(was.shards_ever, wanted.shards_ever)", "()",
             "tests/unit/engine/test_settings.py"),
    Mutation(14, "shards that were in use once are forgotten", "publish_settings",
             "max(configured.shard_count, was.shards_ever)", "configured.shard_count", RULES),
    Mutation(14, "shards whose invocation can't be started are left out", "Processor._not_started",
             "started is not True", "False", SHARDS),
    Mutation(15, "reconcile passes by what was drained without", "what_is_wrong",
             "bucket.minute <= drained.get(bucket.shard, -1)", "False", RECONCILE),
    Mutation(15, "the reconcile goes on behind rows that it has not judged", "_Scan.run",
             "not self.candidates", "True", RECONCILE,
             unreachable="the table of the model has one page, which one invocation reads"),
    Mutation(15, "an event of the reconcile that comes twice starts a second chain", "_move",
             "_read_through(row, order) != order.after", "False", RECONCILE,
             unreachable="the table of the model has one page, which one invocation reads"),
    Mutation(16, "a cursor is written whatever it is by then", "engine:update",
             "(Is(attr.VERSION, old.version),)", "()", WATERMARK),
    Mutation(16, "the drained watermark may go back", "engine:update",
             "max(old.drained_through, new.drained_through)", "new.drained_through", WATERMARK,
             unreachable="no caller ever offers an older one: it is a second line of defence, for callers to come"),
    # -- workers and wake-ups ------------------------------------------------------------------------------------------
    Mutation(17, "what a worker left is not polled while the round lasts", "HandOut.is_over", "", "return False",
             HAND_OUT),
    Mutation(17, "a wake-up claims a task that runs", "domain:claim",
             "*state", "*(() if due else state)", WAKE_UPS),
    Mutation(17, "a bucket of which a worker has a range counts as polled whole", "Polling._claim_page",
             "page.after is None and segment.is_whole and batch.packs_from is None",
             "page.after is None and batch.packs_from is None", WORKERS),
    Mutation(17, "a range of a worker counts as polled once its bucket's packs were", "Polling._leave_packs",
             "segment.is_whole", "True", WORKERS),
    Mutation(17, "the last part of what is read again counts as all of it", "Segment.within",
             "other.is_rest and after == other.after", "other.is_rest", WATERMARK),
    Mutation(17, "a worker claims when its order is over", "_Order.is_held", "", "return True", WORKERS),
    Mutation(17, "the cursor doesn't list what is handed out", "Window.progress",
             "tuple(self.handed_out)", "c.handed_out", WORKERS),
    Mutation(18, "a wake-up claims a task whose instant is another by now", "Claimer.claim",
             "due[task_id].conditions if task_id in due else ()", "()", WAKE_UPS),
    Mutation(18, "the due time counts while a retry waits", "Due.conditions",
             "Absent(attr.NEXT_ATTEMPT_AT)", "*()", WAKE_UPS),
    Mutation(18, "a retry keeps the instant that it had", "domain:_to_scheduled",
             "_due(at)", "_due(task.due_at)", LIFECYCLE),
    Mutation(18, "a wake-up waits for its first task only", "_Waking.work",
             "waiting[0].at <= now", "True", WAKE_UPS),
    Mutation(18, "a tick on time doesn't wait for its minute", "Processor._wait_until",
             "(wait := (instant - self.clock()).total_seconds()) > 0",
             "(wait := (instant - self.clock()).total_seconds()) > 60", WAKE_UPS),
    Mutation(19, "each pass plans what others have planned", "engine:close",
             "max(tick, planned)", "tick", WAKE_UPS),
    Mutation(19, "a cursor's writer is not named", "engine:update",
             "(Is(attr.VERSION, new.version), Is(attr.WRITTEN_BY, writer))", "(Is(attr.VERSION, new.version),)",
             f"{SHARDS} {WATERMARK}"),
    Mutation(19, "a retry gets no wake-up", "Recorder._wake", "", "return", WAKE_UPS,
             unreachable="costs punctuality only: the tick runs what no wake-up runs"),
    # -- schedules -----------------------------------------------------------------------------------------------------
    Mutation(OF_SCHEDULES, "a schedule moves on before its occurrence is written", "Recurring.make_occurrences",
             "self._make(...)\nwrites = self._move_on(...)",
             "writes = self._move_on(list(cases.values()), closed_through)\n"
             "self._make(list(cases.values()), closed_through, lease_until)", RECURRING),
    Mutation(OF_SCHEDULES, "it moves on although its occurrence may not be there", "Recurring._follow",
             "case.failed = True", "", RECURRING),
    Mutation(OF_SCHEDULES, "it moves on from wherever it is by then", "domain:advance",
             "(attr.OUTCOME, attr.STATUS, *attr.DEFINITION, *attr.POSITION)", "(attr.OUTCOME,)", RECURRING),
    Mutation(OF_SCHEDULES, "ids of occurrences go without the revision", "Schedule.occurrence_id",
             "self.revision", "1", RECURRING),
    Mutation(OF_SCHEDULES, "a second process runs an occurrence too", "Recurring._add_existing",
             "view.lease == row[attr.LEASE]", "not is_terminal(present)", RECURRING),
    Mutation(OF_SCHEDULES, "a tick does not ask which occurrences exist", "Recurring._plan",
             "there = self.store.get_many(...)", "", RECURRING),
    Mutation(OF_SCHEDULES, "a pass makes occurrences though its shard is lost", "Claiming.make_occurrences",
             "not self.permit.keep_open(self.budget.hard_end)",
             "self.permit.keep_open(self.budget.hard_end) is None", SCHEDULES),
    Mutation(OF_SCHEDULES, "catchUp none makes the latest all the same", "_Deciding.decide",
             "catch_up is not CatchUp.NONE and is_latest", "is_latest", RECURRING),
    Mutation(OF_SCHEDULES, "catchUp latest makes all", "_Deciding.decide",
             "catch_up is CatchUp.ALL and not is_too_old", "catch_up is not CatchUp.NONE and not is_too_old",
             RECURRING),
    Mutation(OF_SCHEDULES, "a smaller interval makes occurrences late", "domain:tick_of",
             "max(tick, schedule.bucket.minute)", "tick", RECURRING,
             unreachable="none was found in eight minutes"),
    Mutation(OF_SCHEDULES, "an occurrence is in time wherever its schedule was moved to", "domain:tick_of",
             "schedule.bucket is None or schedule.is_moved", "schedule.bucket is None", RECURRING,
             unreachable="none was found in eight minutes"),
    Mutation(OF_SCHEDULES, "a schedule leaves the bucket in which its occurrence is due", "_is_misplaced",
             "due <= now and schedule.bucket.instant <= due + _LONGEST_WAIT", "False", RECURRING,
             unreachable="none was found in eight minutes"),
    Mutation(OF_SCHEDULES, "a schedule that was put into a late bucket stays there", "_is_misplaced",
             "due <= now and schedule.bucket.instant <= due + _LONGEST_WAIT", "due <= now", RECURRING,
             unreachable="none was found in eight minutes"),
    Mutation(OF_SCHEDULES, "an occurrence that is due waits for the start in a new window", "_Deciding.is_due",
             "self._was_due_before(nominal)", "False", RECURRING,
             unreachable="none was found in eight minutes"),
    Mutation(OF_SCHEDULES, "occurrences overlap whatever overlap says", "_Deciding.decide",
             "not self.active or self.schedule.overlap is Overlap.ALLOW", "True", RECURRING),
    Mutation(OF_SCHEDULES, "the buffered occurrence is forgotten", "domain:advance",
             "optional_text(plan.buffered)", "None", RECURRING),
    Mutation(OF_SCHEDULES, "missed occurrences are not recorded", "domain:advance",
             "values[attr.MISSED] = [entry.to_row() for entry in kept]", "", RECURRING),
    Mutation(OF_SCHEDULES, "what was made between two that were missed counts as missed", "domain:_continued",
             "occurrence_after(schedule, last.last) != first.first", "False", RECURRING,
             unreachable="the history alone reads what was missed"),
    Mutation(OF_SCHEDULES, "a pause drops what is due", "is_pending",
             "schedule.defined != schedule.definition", "schedule.defined is None", RECURRING),
    Mutation(OF_SCHEDULES, "a paused schedule goes on", "Schedule.is_paused_at",
             "", "return self.defined_at is None", RECURRING),
    Mutation(OF_SCHEDULES, "the first late tick drops what was due before a pause", "domain:advance",
             "following is None or schedule.is_paused_at(following)", "True", RECURRING),
    Mutation(OF_SCHEDULES, "a new schedule runs without what has a misspelt name", "_begun",
             "check_schedule_names(row)", "", RECURRING,
             unreachable="schedules of the model have no attributes of their own"),
    Mutation(OF_SCHEDULES, "an edit keeps only the first due occurrence", "domain:_repaired",
             "_due_before(schedule, now)", "schedule.due_before", RECURRING),
    Mutation(OF_SCHEDULES, "what is overdue is forgotten unreported", "Recurring._report_overdue",
             "self.report_overdue(...)", "", SCHEDULES),
    Mutation(OF_SCHEDULES, "what overlap leaves out is always overdue", "settle",
             "missed.reason is not MissedFor.OVERLAP or schedule.expected_within_seconds is not None", "True", OVERDUE),
    Mutation(OF_SCHEDULES, "a buffered occurrence is awaited twice", "_newly_awaited",
             "nominal != schedule.buffered_occurrence_at", "True", OVERDUE),
    Mutation(OF_SCHEDULES, "a schedule waits for its next occurrence, whatever is awaited", "_bucket_of_next_poll",
             "[max(...)] if awaited else []", "[]", SCHEDULES),
    Mutation(OF_SCHEDULES, "a pause forgets what is awaited", "domain:_repaired",
             "not schedule.awaited or schedule.bucket is None", "True", SCHEDULES),
    Mutation(OF_SCHEDULES, "an edit puts a schedule behind a deadline", "domain:_repaired",
             "values[attr.TASK_DATE_TIME] = str(_bucket_with_awaited(...))", "", SCHEDULES),
    Mutation(OF_SCHEDULES, "a deployment takes what others inserted for its own", "client:compare",
             "view.owner == owner", "True", DECLARED),
    Mutation(OF_SCHEDULES, "a deployment changes a schedule that became another's", "Schedules._is_made",
             "merge_updates(...)", "update", DECLARED),
    Mutation(OF_SCHEDULES, "a deployment removes a schedule that became another's", "Schedules._remove",
             "task_update.in_version(row, version_of(row))", "()", DECLARED),
    # -- rate limits ---------------------------------------------------------------------------------------------------
    Mutation(OF_RATES, "a process reserves starts that another has", "first_free",
             "until == unused.until", "True", RATES),
    Mutation(OF_RATES, "a process reserves starts as if it were alone", "first_free",
             "max(earliest, unused.since if until == unused.until else until)", "earliest", RATES),
    Mutation(OF_RATES, "what was not used is lost for ever", "first_free",
             "unused.since if until == unused.until else until", "until", RATES),
    Mutation(OF_RATES, "a task begins by a start that has passed long ago", "_Limit.take",
             "now - self.starts[0] > LATE", "False", RATES),
    Mutation(OF_RATES, "a task does not wait for its start", "_Limit.take",
             "self.starts[index] - now > EARLY", "False", RATES),
    Mutation(OF_RATES, "a task begins by a start that is promised to another", "_Limit.take",
             "0 if is_promised else self.promised", "0", RATES),
    Mutation(OF_RATES, "of two processes that reserve at once, both have the same starts", "engine:RateRecords.reserve",
             "as_read(there, attr.VERSION, attr.RESERVED_UNTIL)", "()", RATES),
    Mutation(OF_RATES, "a reservation of another process counts as its own", "engine:RateRecords.reserve",
             "(Is(attr.VERSION, new), Is(attr.WRITTEN_BY, token))", "(Is(attr.VERSION, new),)", RATES),
    Mutation(OF_RATES, "a process reserves starts, however far they lie ahead", "engine:RateRecords.reserve",
             "first >= latest", "False", RATES),
    Mutation(OF_RATES, "what tasks still wait for is given back", "_Limit.unused",
             "self.reserved_until if self.starts else self.unused_since", "self.unused_since", RATES),
    Mutation(OF_RATES, "members that wait for a rate limit take the room of other tasks", "Claiming._has_room",
             "execution.packs.rate_limited", "0", PACKS),
    Mutation(OF_RATES, "members that wait for a rate limit take the places of other packs' members", "Packs._begin",
             "self._submitted[one.limited]", "self._submitted.total()", PACKS),
    Mutation(OF_RATES, "payloads that wait for a rate limit keep those of other packs from being read", "Packs.proceed",
             "ready[one.limited] < MAX_READY", "ready.total() < MAX_READY", PACKS),
    Mutation(OF_RATES, "a pack waits on although its deferred members may begin", "Packs.proceed",
             "one.deferred_until = None", "pass", PACKS),
    Mutation(12, "a pack that is deferred forgets which members are done", "Packs._defer",
             "{attr.PACK: one.attribute()}", "{}", PACKS),
    Mutation(OF_RATES, "a pack of which members wait goes on behind what was deferred", "RateLimits._queue",
             "pack is not None and all(limit.last_pack == pack for limit in limits)", "False", RATES),
    Mutation(OF_RATES, "what other processes have reserved meanwhile is given back", "RateLimits._reserve",
             "not limit.starts or first != limit.reserved_until", "not limit.starts", RATES),
    Mutation(OF_RATES, "starts are reserved as far ahead as tasks wait", "RateLimits._take",
             "free_at - now <= ahead", "True", RATES),
    Mutation(OF_RATES, "a process with many tasks takes each start", "_Limit.ahead",
             "AHEAD - _YIELD if self.is_last else AHEAD", "AHEAD", RATES),
    Mutation(OF_RATES, "a process that has reserved no start yields all the same", "RateLimits._reserve",
             "limit.reserved_until, limit.is_last = first, first < latest",
             "limit.reserved_until, limit.is_last = first, True", RATES),
    # -- limits by key -------------------------------------------------------------------------------------------------
    Mutation(23, "a process acquires the lease that another has", "LimitsRecord.is_leased",
             "self.lease is not None", "False", TURNS),
    Mutation(23, "a limits lease is over at once, by whichever clock", "LimitsRecord.is_leased",
             "self.lease_until + SKEW_MARGIN", "self.lease_until", TURNS),
    Mutation(23, "the lease counts for a process that could not see the others", "KeyTurns._has_lease",
             "self.fault is not None or self._is_over", "self._is_over", TURNS),
    Mutation(23, "a pass begins tasks when it has released the lease", "KeyTurns._has_lease",
             "self.fault is not None or self._is_over", "self.fault is not None", TURNS),
    Mutation(23, "the lease is released while a task runs", "KeyTurns.end",
             "len(self._places) == len(self._held)", "True", TURNS),
    Mutation(23, "the places that are kept are not read", "LimitsLease.acquire",
             "{one.task_id: one for one in found.held}", "{}", TURNS),
    Mutation(23, "the places that are kept are forgotten at the release", "LimitsLease.release",
             "tuple(self.held.values())", "()", TURNS),
    Mutation(23, "a place ends while its task is being handed over", "Held.is_held",
             "(Status.WAITING, Status.RUNNING)", "(Status.WAITING,)", TURNS),
    Mutation(23, "a task is handed over, and its place is not written", "KeyTurns.hold",
             "not mine or self._lease.hold(mine)", "True", TURNS),
    Mutation(23, "what could not be written counts as a place that is kept", "KeyTurns.is_handed_over",
             "task.task_id in self._lease.held", "True", TURNS),
    Mutation(23, "a task is handed over though its place could not be written", "Execution._record",
             "[one for n, one in enumerate(attempts) if n not in keyed]", "attempts", TURNS),
    Mutation(23, "a place is free once its task has begun", "_Key.has_place",
             "self.taken < self.limit.at_once", "self.unbegun < self.limit.at_once", TURNS),
    Mutation(23, "a place is free when its task was handed over", "Execution._ended",
             "not isinstance(attempted.outcome, Handed)", "True", TURNS),
    Mutation(23, "the place of a retry is freed by the late answer to the last record", "Execution._attempts_recorded",
             "RowView(row).is_pack", "True", TO_THE_SECOND),
    Mutation(23, "a pack that has ended is open for ever", "Execution._attempts_recorded",
             "RowView(row).is_pack", "False", IN_TURN),
    Mutation(23, "whatever was claimed begins", "Execution.start",
             "may_begin and (self.turns.opens if is_pack else self.turns.admits)(claimed.task)", "may_begin", TURNS),
    Mutation(23, "what was claimed without a place begins beyond the limit", "KeyTurns.admits",
             "not self._may_begin(key, task.task_id)", "False", TURNS),
    Mutation(23, "an invocation without the shard begins tasks with limits", "Turns.admits",
             "", "return True", TURNS),
    Mutation(23, "a task begins whose place there is no room to note", "KeyTurns._has_room",
             "", "return True", TURNS),
    Mutation(23, "a class that is never handed over waits for room", "KeyTurns._has_room",
             "class_of(key.name) not in self._handing_over", "False", TURNS),
    Mutation(23, "what waits for room is not thought of when there is some", "KeyTurns.unclaimed",
             "if self._kept_out:\n    self._may_have_turn(...)", "", TURNS),
    Mutation(23, "two entries of a task take two places", "KeyTurns._next_task",
             "one[1] not in self._places", "True", TURNS),
    Mutation(23, "an entry that was not claimed frees another's place", "KeyTurns.not_claimed",
             "self._taken.get(task_id) == bucket", "task_id in self._taken", TURNS),
    Mutation(23, "an entry of a task that runs does not hold its bucket back", "KeyTurns.offer",
             "task_id in self._places", "task_id in self._held", TURNS),
    Mutation(23, "a task whose process died is attempted again beside others of its key", "Recovery._may_begin",
             "not self.execution.turns.may_admit(row)", "False", TURNS),
    Mutation(23, "another invocation attempts it again", "ExpiredLeases.add",
             "self.is_limited(task.limit_key)", "False", TURNS),
    Mutation(23, "a rate is not waited for", "KeyTurns.seconds_to_wait",
             "now < key.free_at", "False", TURNS),
    Mutation(23, "a task that waits for the rate of its action waits for its own start", "KeyTurns.seconds_to_wait",
             "not is_own", "True", TURNS),
    Mutation(23, "another attempt of a task begins by the start of the last one", "KeyTurns.seconds_to_wait",
             "key.is_kept and key.start_of == task.task_id", "key.start_of == task.task_id", TURNS),
    Mutation(23, "what has lost its start keeps another's", "KeyTurns.keep_start",
             "key.start_of == task.task_id", "True", TURNS),
    Mutation(23, "tasks are claimed long before their rate lets them begin", "KeyTurns.take",
             "(at := key.next_at(now)) > now + self._ahead", "(at := key.next_at(now)) > now + timedelta(days=1)",
             TURNS),
    Mutation(23, "the next process knows no starts of the last one", "LimitsLease.release",
             "{**record.starts, **starts}", "{}", TURNS),
    Mutation(23, "the starts of long keys leave no room for what is held", "LimitsLease.release",
             "sum(len(key.encode()) + 30 for key in left) > MAX_STARTS_BYTES", "False", TURNS),
    Mutation(23, "a process that died has begun nothing", "LimitsLease.acquire",
             "record.began_until if record.lease_until is None else record.lease_until", "record.began_until", TURNS),
    Mutation(23, "what was known before a process died still counts", "LimitsLease.acquire",
             "record.starts if record.lease is None else {}", "record.starts", TURNS),
    Mutation(23, "a write of places is taken for the one before it", "LimitsLease._update",
             'f"{self._token}/{next(self._writes)}"', "self._token", TURNS),
    Mutation(23, "a member begins without a place", "KeyTurns.begins_member",
             "not self._may_begin(key, member_id)", "False", IN_TURN),
    Mutation(23, "a member begins after the lease was released", "KeyTurns.begins_member",
             "not self._has_lease()", "False", IN_TURN),
    Mutation(23, "a member begins beside a task that has its id, in one place", "KeyTurns.begins_member",
             "member_id in self._places", "False", IN_TURN),
    Mutation(23, "an invocation without the shard opens packs with limits", "Turns.opens",
             "", "return True", IN_TURN),
    Mutation(23, "a pack opens without the lease", "KeyTurns.opens",
             "not self._has_lease()", "False", IN_TURN),
    Mutation(23, "a key that was asked for before the lease was held forgets its rate", "KeyTurns.expected",
             "self._keys.get(key)", "self._key(key)", TURNS),
    Mutation(23, "a place ends while a member is being handed over", "KeyTurns.look_at_held",
             "self._lease.look_at_held(self._held)", "self._lease.look_at_held()", IN_TURN),
    Mutation(23, "a member that was taken back keeps its place", "Packs.took_back",
             "self._turns.freed(claimed.task)", "", IN_TURN),
    Mutation(18, "a pass begins what is not yet due", "engine:due_by_key",
             "due is not None and due.at <= now and _is_in_own_shard(entry, bucket, services)",
             "due is not None and _is_in_own_shard(entry, bucket, services)", TO_THE_SECOND),
    Mutation(18, "a pass claims before the tick whatever the index lists", "Claiming._take_due",
             "self._is_open(bucket)", "False", TO_THE_SECOND),
    Mutation(18, "what could not be claimed before its tick is judged as at the tick", "Claimer.claim",
             "not isinstance(result, Written) and task_id in due", "False", TO_THE_SECOND),
    Mutation(18, "a continuation begins what an earlier pass could not claim before its tick", "Claiming._leave_behind",
             "not self._is_open(bucket)", "True", TO_THE_SECOND),
    Mutation(18, "a key reads on in a bucket that is not closed", "KeyTurns.offer",
             "if is_closed:\n    self._skip(line, Resume(bucket.minute, task_id[:-1] or None))",
             "self._skip(line, Resume(bucket.minute, task_id[:-1] or None))", TURNS),
    Mutation(19, "a pass that is woken while another holds its shard says nothing", "engine:acquire_shard",
             "closed = replace(closed, woken_at=max(woken_at, cursor.woken_at or woken_at))", "", TO_THE_SECOND),
    Mutation(16, "a lease is not renewed if others have written the cursor", "ShardLease.renew",
             "self.is_held", "self.renew_at and not self.window.cursor.woken_at", TO_THE_SECOND),
    Mutation(24, "a process that knows another number of shards has the lease", "LimitsLease._others",
             "present is None or present.grid.shard_count != self._settings.grid.shard_count", "present is None",
             TURNS),
    Mutation(24, "it keeps the lease all the same", "LimitsLease.acquire", "self.release({})", "", TURNS),
    Mutation(24, "leases by another number of shards don't count", "LimitsLease._others",
             "one.is_leased(now) and one.shard_count != count", "False", TURNS),
    Mutation(24, "the leases of all other shards count", "LimitsLease._others",
             "one.shard_count != count", "True", TURNS),
    Mutation(24, "places that another shard keeps are not known", "LimitsLease._of_my_keys",
             "grid.shard_of(one.key) == self._shard", "False", TURNS),
    Mutation(24, "starts that another shard knows of are not known", "LimitsLease._of_my_keys",
             "grid.shard_of(key) == self._shard", "False", TURNS),
    Mutation(24, "a process of another number of shards that died has begun nothing", "LimitsLease._of_my_keys",
             "until if until <= since + LONGEST_LEASE else EPOCH", "EPOCH", TURNS),
    Mutation(24, "a task begins in the shard of another key", "Claiming.offer",
             "self.execution.services.settings.grid.shard_of(key) != bucket.shard", "False", TURNS),
    Mutation(24, "a task in the shard of another key is left there", "Placer.is_ahead",
             "bucket is None or (key is not None and bucket.shard != self.settings.grid.shard_of(key))",
             "bucket is None", TURNS),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make mutations", description="Takes out rules and guards, one at a time.")
    parser.add_argument("--rule", type=int, help="only those of this rule (0: of schedules)")
    rule = parser.parse_args(arguments).rule
    mutations = [mutation for mutation in MUTATIONS if rule in (None, mutation.rule)]
    began = time.monotonic()
    changes, gone = _changes(mutations)
    for problem in gone:
        print(problem, file=sys.stderr)
    processes = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="dynatick-mutations-") as folder, ThreadPoolExecutor(processes) as pool:
        copies = SimpleQueue[Path]()
        for n in range(processes):
            copies.put(_copy(Path(folder, str(n))))
        # A folder's files side by side: pytest 9.1 loses the folder's fixtures when it comes back to it.
        everything = sorted({tests for mutation in mutations for tests in mutation.tests.split()})
        failing = _failing(Path(folder, "0"), everything, "-n", str(processes))
        if failing:
            print(f"without any mutation these fail already: {', '.join(failing)}", file=sys.stderr)
            return 1
        found = pool.map(partial(_failing_with, copies), changes)
        unnoticed = [one for (one, *_), failing in zip(changes, found, strict=True) if not _report(one, failing)]
    rules = {*range(1, 25)} if rule is None else {rule}
    missing = rules - {mutation.rule for mutation in mutations}
    noticed, seconds = len(changes) - len(unnoticed), time.monotonic() - began
    print(
        f"{noticed} of {len(mutations)} mutations noticed, of {len(rules) - len(missing)} rules and of schedules, "
        f"in {seconds / 60:.1f} minutes"
    )
    return 1 if unnoticed or missing or gone else 0


def _changes(mutations: Iterable[Mutation]) -> tuple[list[Change], list[CannotMutate]]:
    """Each mutation with its file and that file's text then; and why others can't be made any more."""
    changes, gone = list[Change](), list[CannotMutate]()
    for mutation in mutations:
        try:
            changes.append((mutation, *mutation.applied()))
        except CannotMutate as error:
            gone.append(error)
    return changes, gone


def _copy(folder: Path) -> Path:
    for name in COPIED:
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copied(ROOT / name, folder / name)
    return folder


def _failing_with(copies: SimpleQueue[Path], change: Change) -> list[str]:
    """The first test that fails for a mutation, in one of the copies; none: it goes unnoticed."""
    mutation, path, text = change
    copy = copies.get()
    changed = copy / path.relative_to(ROOT)
    try:
        changed.write_text(text, encoding="utf-8")
        return _failing(copy, mutation.tests.split(), "--exitfirst")
    finally:
        shutil.copy2(path, changed)
        copies.put(copy)


def _failing(copy: Path, tests: Sequence[str], *options: str) -> list[str]:
    """The names of the tests that fail in a copy."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *_WITHOUT, "--timeout=60", *options, *tests],
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


def _report(mutation: Mutation, failing: Sequence[str]) -> bool:
    """Prints a line of the table. Whether the mutation was noticed."""
    number = mutation.rule if mutation.rule > 0 else "+"
    print(f"{number:>2}  {mutation.what:<68}  {failing[0] if failing else 'NO TEST FAILS'}", flush=True)
    return bool(failing)


if __name__ == "__main__":
    sys.exit(main())
