"""The names of the attributes of the table's rows, each named here and nowhere else.

An *instant* is a text, RFC 3339 in UTC; a *bucket* is the name of one. What users set may have other forms, too. Types
of the API and the client declare the same names for themselves: see docs/reference/attributes.md for what they mean.
"""

from typing import Final

# -- tasks, and some of schedules and of Dynatick's own rows -----------------------------------------------------------

TASK_ID: Final = "taskId"  # the key
TASK_DATE_TIME: Final = "taskDateTime"  # the bucket; in a user's row, any time
DUE_AT: Final = "dueAt"  # instant; in a user's row, any time
DELAY_SECONDS: Final = "delaySeconds"  # number; gone once the task is scheduled
ACTION: Final = "action"
PAYLOAD: Final = "payload"  # map
RETRY_POLICY: Final = "retryPolicy"  # map of the names below
TIMEOUT_SECONDS: Final = "timeoutSeconds"  # whole number
SUBJECT: Final = "subject"  # text: what the task is about; the key of an index
LIMIT_KEY: Final = "limitKey"  # text, class and colon first: what limits it; its hash is its shard
SCHEDULE_ID: Final = "scheduleId"  # of an occurrence; a schedule's own is its id
STATUS: Final = "status"  # a task's Status, "recurring", or the kind of one of Dynatick's own rows
OUTCOME: Final = "outcome"  # the status of an ended task; own rows have "none", so that scans for open tasks skip them
ATTEMPT: Final = "attempt"  # whole number, from 0
ATTEMPTS: Final = "attempts"  # list of maps: run, attempt, startedAt, finishedAt, error, and trace in the last one
TRACE: Final = "trace"  # text, a line for each frame
RUN: Final = "run"  # whole number, from 1
TURN: Final = "turn"  # whole number, from 1; of a task that its handler has rescheduled, like the next
FIRST_STARTED_AT: Final = "firstStartedAt"  # instant, of the run
NEXT_ATTEMPT_AT: Final = "nextAttemptAt"  # instant, of a retry, a deferral or a further turn
LATE_MILLISECONDS: Final = "lateMilliseconds"  # whole number, from 0; of the first attempt of the run
LEASE: Final = "lease"  # the token of the process that has it
LEASE_UNTIL: Final = "leaseUntil"  # instant
CREATED_AT: Final = "createdAt"  # instant
INSERT_TOKEN: Final = "insertToken"  # text, of a task that was inserted without createdAt: which insert it was
STARTED_AT: Final = "startedAt"  # instant, of the latest attempt
FINISHED_AT: Final = "finishedAt"  # instant
RESTORED_AT: Final = "restoredAt"  # instant: when its latest cancellation was taken back
REPLACED_AT: Final = "replacedAt"  # instant: when an insert last gave it another payload and time
FIRST_DUE_AT: Final = "firstDueAt"  # instant: when it was due before inserts postponed it
FOLLOW_UP_OF: Final = "followUpOf"  # id of the task whose handler has inserted it; of a batch's ``then``, of the batch
FOLLOW_UPS: Final = "followUps"  # list of ids: what its handler has inserted, in the attempt that completed
TRACEPARENT: Final = "traceparent"  # text: the span that it comes from, in the form of W3C Trace Context
COMPLETE_BY: Final = "completeBy"  # instant, of a task that waits for a completion, like the next two
HEARTBEAT_SECONDS: Final = "heartbeatSeconds"  # number
RETURNS_TO: Final = "returnsTo"  # the bucket in which it was due
RESULT: Final = "result"  # any value
ERROR: Final = "error"  # text
EXPIRES_AT: Final = "expiresAt"  # epoch seconds: DynamoDB deletes the row then
MOVED_TO: Final = "movedTo"  # the bucket to which Dynatick itself has moved the row
DEFERRALS: Final = "deferrals"  # whole number
IDEMPOTENCY_DIGEST: Final = "idempotencyDigest"  # text: of the HTTP request that inserted the task, and of its key
BATCH_ID: Final = "batchId"  # of a member of a batch
LISTED_AS: Final = "listedAs"  # text: the list that a row is in, the key of an index: batch, change
LISTED_AT: Final = "listedAt"  # instant, of a whole second: its place in that list
PACK: Final = "pack"  # map of the names below: what makes a task the pack of a batch
PACK_MEMBERS: Final = "packMembers"  # number, of a pack: it never changes, so the index of buckets has it
MALFORMED_REASON: Final = "malformedReason"
"""The reason why a row is malformed, kept until the dead-letter queue accepts its message."""

TIME_INPUTS: Final = (TASK_DATE_TIME, DUE_AT, DELAY_SECONDS)
"""The attributes from which a task's time follows, in order of precedence."""

OWN_ATTRIBUTES = frozenset(
    {
        TASK_ID, TASK_DATE_TIME, DUE_AT, DELAY_SECONDS, ACTION, PAYLOAD, STATUS, OUTCOME, ATTEMPT, ATTEMPTS,
        RETRY_POLICY, TIMEOUT_SECONDS, LEASE, LEASE_UNTIL, RUN, CREATED_AT, STARTED_AT, FINISHED_AT, RESULT, ERROR,
        EXPIRES_AT, SCHEDULE_ID, MOVED_TO, DEFERRALS, MALFORMED_REASON, TURN, FIRST_STARTED_AT, NEXT_ATTEMPT_AT,
        LATE_MILLISECONDS, IDEMPOTENCY_DIGEST, RESTORED_AT, SUBJECT, LIMIT_KEY, BATCH_ID, PACK, PACK_MEMBERS,
        REPLACED_AT, FIRST_DUE_AT, FOLLOW_UP_OF, FOLLOW_UPS, LISTED_AS, LISTED_AT, TRACEPARENT, COMPLETE_BY,
        HEARTBEAT_SECONDS, RETURNS_TO, INSERT_TOKEN,
    }
)  # fmt: skip
"""Dynatick's own attributes. All others are the user's, and are passed to the action unchanged."""

# Of a retryPolicy: whole numbers.
MAXIMUM_RETRY_ATTEMPTS: Final = "maximumRetryAttempts"
MAXIMUM_EVENT_AGE_IN_SECONDS: Final = "maximumEventAgeInSeconds"
MIN_BACKOFF_SECONDS: Final = "minBackoffSeconds"
MAX_BACKOFF_SECONDS: Final = "maxBackoffSeconds"

# Of a pack, with batchId. Sets of its members are the bits of a binary, the lowest first.
FIRST: Final = "first"  # whole number: that of its first member in the batch
MEMBERS: Final = "members"  # whole number
DONE: Final = "done"  # members that have completed
EXCLUDED: Final = "excluded"  # members that were cancelled, or rescheduled
EXTRACTED: Final = "extracted"  # members that have rows of their own
BODY: Final = "body"  # of its body: binary, the compressed payloads

# -- schedules ---------------------------------------------------------------------------------------------------------

SCHEDULE_EXPRESSION: Final = "scheduleExpression"
CRON_EXPRESSION: Final = "cronExpression"  # another name for it
SCHEDULE_EXPRESSION_TIMEZONE: Final = "scheduleExpressionTimezone"
START_DATE: Final = "startDate"  # instant; in a user's row, any time
END_DATE: Final = "endDate"  # the same
FLEXIBLE_TIME_WINDOW: Final = "flexibleTimeWindow"  # minutes
SCHEDULE_STATE: Final = "scheduleState"  # a ScheduleState
CATCH_UP: Final = "catchUp"
OVERLAP: Final = "overlap"
EXPECTED_WITHIN_SECONDS: Final = "expectedWithinSeconds"  # whole number
STATE_REASON: Final = "stateReason"
SCHEDULE_OWNER: Final = "scheduleOwner"  # text: the deployment that declares it; absent: no deployment does
REVISION: Final = "revision"  # whole number, from 1
ACCEPTED_DEFINITION: Final = "definition"  # map: the DEFINITION attributes, as last accepted
DEFINED_AT: Final = "definedAt"  # instant
NEXT_OCCURRENCE_AT: Final = "nextOccurrenceAt"  # instant, like the next two
BUFFERED_OCCURRENCE_AT: Final = "bufferedOccurrenceAt"
LAST_OCCURRENCE_AT: Final = "lastOccurrenceAt"
LAST_TASK_ID: Final = "lastTaskId"
AWAITED: Final = "awaited"  # list of maps: dueAt, expectedBy; of occurrences that must complete
MISSED: Final = "missed"  # list of maps: from, until, occurrences, reason; in a tick record, a number
MISSED_OCCURRENCES: Final = "missedOccurrences"  # whole number
DUE_BEFORE: Final = "dueBefore"  # list of maps: the TIMING attributes, since, until
EARLIER: Final = "earlier"  # list of the same maps
RAN_NOW: Final = "ranNow"  # list of instants
BACKFILLED: Final = "backfilled"  # list of maps: the TIMING attributes, from, until

RECURRENCE: Final = (SCHEDULE_EXPRESSION, CRON_EXPRESSION)
"""Either makes a row a schedule; the second is another name for the first."""

TIMING: Final = (SCHEDULE_EXPRESSION, SCHEDULE_EXPRESSION_TIMEZONE, START_DATE, END_DATE)
"""The attributes that a schedule's nominal instants follow from."""

DEFINITION: Final = (CRON_EXPRESSION, *TIMING, FLEXIBLE_TIME_WINDOW, SCHEDULE_STATE)
"""The attributes that decide when a schedule has occurrences."""

DECLARED: Final = (
    *TIMING, FLEXIBLE_TIME_WINDOW, CATCH_UP, OVERLAP, EXPECTED_WITHIN_SECONDS, ACTION, PAYLOAD, RETRY_POLICY,
    TIMEOUT_SECONDS, SUBJECT, LIMIT_KEY,
)  # fmt: skip
"""What a deployment declares of a schedule. A pause is none of it: it is for people, and outlasts deployments."""

POSITION: Final = (TASK_DATE_TIME, NEXT_OCCURRENCE_AT, BUFFERED_OCCURRENCE_AT, LAST_OCCURRENCE_AT, DEFINED_AT)
"""The attributes that say how far a schedule has come."""

SCHEDULE_ATTRIBUTES = frozenset(
    {
        *DEFINITION, CATCH_UP, OVERLAP, EXPECTED_WITHIN_SECONDS, STATE_REASON, REVISION, ACCEPTED_DEFINITION,
        DEFINED_AT, NEXT_OCCURRENCE_AT, BUFFERED_OCCURRENCE_AT, DUE_BEFORE, LAST_OCCURRENCE_AT, LAST_TASK_ID, AWAITED,
        MISSED, MISSED_OCCURRENCES, SCHEDULE_OWNER, EARLIER, RAN_NOW, BACKFILLED,
    }
)  # fmt: skip
"""The attributes of schedules that tasks do not have. On a task they are the user's own."""

# Of the entries of awaited, missed, dueBefore, earlier and backfilled, and of a tick record's idleBefore.
EXPECTED_BY: Final = "expectedBy"  # instant
FROM: Final = "from"  # instant
SINCE: Final = "since"  # instant; of idle ticks, a bucket
UNTIL: Final = "until"  # the same
OCCURRENCES: Final = "occurrences"  # whole number, also of a tick record
REASON: Final = "reason"
TICKS: Final = "ticks"  # whole number

# -- Dynatick's own rows; all have taskId, status and outcome ----------------------------------------------------------

VERSION: Final = "version"  # whole number, one more with each write

# Cursors, which have lease and leaseUntil, too. Buckets, unless it says otherwise.
CLOSED_THROUGH: Final = "closedThrough"
DRAINED_THROUGH: Final = "drainedThrough"
POLLED_THROUGH: Final = "polledThrough"
PLANNED_THROUGH: Final = "plannedThrough"
CHECKPOINT: Final = "checkpoint"
CHECKPOINT_AT: Final = "checkpointAt"  # instant
OPEN_UNTIL: Final = "openUntil"  # instant
HANDED_OUT: Final = "handedOut"  # list of maps: bucket, after, through, until; NULL: none
IDLE_SINCE: Final = "idleSince"
IDLE_TICKS: Final = "idleTicks"  # whole number
LAST_TICK: Final = "lastTick"
WOKEN_AT: Final = "wokenAt"  # instant; NULL: its holder was not woken

# The idle record of a group of shards.
SERVED: Final = "served"  # list of maps: tick, notIdle
NOT_IDLE: Final = "notIdle"  # list of shards

# The settings.
TICK_MINUTES: Final = "tickMinutes"  # whole number, like the next two
SHARD_COUNT: Final = "shardCount"
SHARDS_EVER: Final = "shardsEver"
SHARD_COUNT_SINCE: Final = "shardCountSince"  # instant; absent: it has never changed
TICK_MINUTES_SINCE: Final = "tickMinutesSince"  # the same
KEY_LIMITS: Final = "keyLimits"  # map: limits as text, by class
ACTIONS: Final = "actions"  # list of names
DEFAULT_ACTION: Final = "defaultAction"
RETENTION_DAYS: Final = "retentionDays"  # whole number
MAX_TIMEOUT_SECONDS: Final = "maxTimeoutSeconds"  # whole number
PRECISION: Final = "precision"  # text: tick or second
PAYLOAD_SCHEMAS: Final = "payloadSchemas"  # map: JSON as text, by action
PAYLOAD_SCHEMA_FORM: Final = "payloadSchemaForm"  # whole number
SCHEMA_VERSION: Final = "schemaVersion"  # whole number; of the rows of the whole table
UPDATED_AT: Final = "updatedAt"  # instant
PROCESSOR_PROBLEM: Final = "processorProblem"  # text: why the processor can't start
PAUSED: Final = "paused"  # map: since, by, reason; absent while ticks run tasks
PAUSES: Final = "pauses"  # list of maps: the last ones that have ended, with until
PAUSED_ACTIONS: Final = "pausedActions"  # map: of each action that is paused, a map as ``paused`` is
ACTION_PAUSES: Final = "actionPauses"  # list of maps: the last pauses of actions that have ended, with action and until
BY: Final = "by"  # text: who

PUBLISHED: Final = (
    TICK_MINUTES, TICK_MINUTES_SINCE, SHARD_COUNT, SHARDS_EVER, SHARD_COUNT_SINCE, KEY_LIMITS, ACTIONS, DEFAULT_ACTION,
    RETENTION_DAYS, MAX_TIMEOUT_SECONDS, PRECISION, PAYLOAD_SCHEMAS, PAYLOAD_SCHEMA_FORM, SCHEMA_VERSION,
    PROCESSOR_PROBLEM,
)  # fmt: skip
"""What the settings say."""

# The limits record of a shard, which has lease, leaseUntil and version, too.
HELD: Final = "held"  # list of maps: taskId, limitKey, lease; of tasks that wait for a completion
STARTS: Final = "starts"  # map: when the next task of a key may begin, an instant, by key
BEGAN_UNTIL: Final = "beganUntil"  # instant: since then no task has begun whose key is not in it

# A rate record, which has version and writtenBy, too.
RESERVED_UNTIL: Final = "reservedUntil"  # instant: from then on no start is reserved
RATE: Final = "rate"  # such as 10/s: how many may begin

# The record of a change of many tasks, which has createdAt, finishedAt, expiresAt, by, listedAs and listedAt, too, and
# as body the runs that it began.
INTERFACE: Final = "interface"  # text: command line, page, HTTP, Python
CHANGE: Final = "change"  # text: what was done to each task
GIVEN: Final = "given"  # map of texts: the filter
STATE: Final = "state"  # text
CHANGED: Final = "changed"  # whole number, like the next two
SKIPPED: Final = "skipped"
UNANSWERED: Final = "unanswered"
PROBLEM: Final = "problem"  # text
CAN_ABORT: Final = "canAbort"  # true: its process looks whether it is asked to end early
ABORT_BY: Final = "abortBy"  # text: who has asked to end it early
NOT_FOLLOWED: Final = "notFollowed"  # whole number: runs that are not in its body

# A chain of the reconcile, which has writtenBy and expiresAt, too.
READ_THROUGH: Final = "readThrough"  # id

# Bucket records, which have version, expiresAt, and some of the numbers of tick records, too. Whole numbers.
WRITTEN_BY: Final = "writtenBy"  # text: the token of the latest writer
REDRIVEN_FAILED: Final = "redrivenFailed"
REDRIVEN_COMPLETED: Final = "redrivenCompleted"
REDRIVEN_CANCELLED: Final = "redrivenCancelled"

# Tick records, which have startedAt, finishedAt and expiresAt, too. Whole numbers, unless it says otherwise.
TICK: Final = "tick"  # bucket
SHARD: Final = "shard"
CONTINUATION: Final = "continuation"
FAILED: Final = "failed"
RETRIED: Final = "retried"
RESCHEDULED: Final = "rescheduled"
DEFERRED: Final = "deferred"
MOVED: Final = "moved"
WOKEN_LATE: Final = "wokenLate"
LATENESS_MAX_MS: Final = "latenessMaxMs"
LATENESS_MEAN_MS: Final = "latenessMeanMs"
LATENESS_P50_MS: Final = "latenessP50Ms"
LATENESS_P99_MS: Final = "latenessP99Ms"
FIRST_START_MS: Final = "firstStartMs"
IDLE_BEFORE: Final = "idleBefore"  # map: since, until, ticks
BY_ACTION: Final = "byAction"  # map: by action what is counted of its attempts
CONTINUED: Final = "continued"  # boolean
