"""docs/reference/attributes.md: the attributes of a task's row."""

from typing import Any

from dynatick.domain.attributes import OWN_ATTRIBUTES, SCHEDULE_ATTRIBUTES
from dynatick_stack import template
from dynatick_stack.reference import markdown
from dynatick_stack.reference.markdown import entries

# Type, who sets it, what it is; the page refuses to be made when one is missing or too many.
_ATTRIBUTES = entries("""\
taskId | text | you | The key: any text of 1 to 1,024 bytes that does not begin with `_dynatick#`
taskDateTime | text or number | you, then Dynatick | When: a bucket (`2026-12-31#12:00`), an instant with its offset,
    or epoch seconds. Once the task is scheduled, the name of its bucket: the tick at which it runs, or ran the last
    time
dueAt | text or number | you, or Dynatick | The instant at which it is due, to the millisecond; kept when a retry
    moves the task
delaySeconds | number | you | When: so many seconds after the row was written. Gone once the task is scheduled
action | text | you, or Dynatick | What to run: a [built-in action](actions.md), or a handler's name.
    Default: `DefaultAction`
payload | map | you | The action's arguments
retryPolicy | map | you | `maximumRetryAttempts` (3), `maximumEventAgeInSeconds` (86400), `minBackoffSeconds` (5),
    `maxBackoffSeconds` (3600)
timeoutSeconds | number | you | How long an attempt takes at the most, in whole seconds from 1 to 900: none is begun
    with less time left ([what it means](../how-to/handlers.md#how-long-it-takes)). Default: what its handler declares
scheduleId | text | Dynatick | The schedule that made this task
status | text | Dynatick | `scheduled`, `running`, `completed`, `failed` or `cancelled`; none: nobody has looked at it
    yet
outcome | text | Dynatick | The status of a task that has ended, and only of such: what the index is filtered by
attempt | number | Dynatick | Which attempt of this run it is; counted at the claim, 0 until the first
attempts | list of maps | Dynatick | Earlier attempts: `run`, `attempt`, `startedAt`, `finishedAt`, `error`, and in the
    last one `trace`, where it was raised. The latest of them, where there are many
run | number | Dynatick | 1, and one more with each redrive, and each run-now of an ended task. The idempotency
    key is made of `taskId`, `createdAt`, `run` and `turn`
turn | number | Dynatick | How often the handler has rescheduled the task in this run: attempts start again, and the
    idempotency key ends with it. A task that was not rescheduled has none
firstStartedAt | text | Dynatick | When the first attempt of the run began, once its handler has rescheduled it
nextAttemptAt | text | Dynatick | The instant before which a retry or a further turn is not begun; of a task that its
    rate limit deferred, when that allowed it
lateMilliseconds | number | Dynatick | How late the first attempt of the run began: milliseconds from its tick, with
    `Precision: second` from when it was due; of a task that was inserted after it was due, from then. Written when that
    attempt ended; if its process died, when the next one did
lease | text | Dynatick | The claim's token, while the task runs
leaseUntil | text | Dynatick | The instant after which another process may take the task over
createdAt | text | Dynatick | When it was inserted, or first looked at; whatever a raw row says. Occurrences of
    schedules have none
startedAt | text | Dynatick | When the latest attempt began
finishedAt | text | Dynatick | When it ended
result | anything | Dynatick | What the action returned, up to 4 KB
error | text | Dynatick | Why it failed, or why the latest attempt did
expiresAt | number | Dynatick | Epoch seconds after which the table forgets an ended task: `RetentionDays` after its
    end
movedTo | text | Dynatick | The bucket that a retry has moved it to, by which the scheduler tells that from an edit by
    hand
deferrals | whole number | Dynatick | How often the row was put off because nothing could be done with it: each
    time longer, up to an hour
malformedReason | text | Dynatick | Why it cannot be understood, for as long as the dead-letter queue does not take its
    message: then it fails
""")

# The same of schedules.
_OF_SCHEDULES = entries("""\
scheduleExpression | text | you | `rate(5 minutes)`, `cron(0 9 ? * MON-FRI *)` or `at(2026-12-31T12:00:00)`: makes the
    row a schedule
cronExpression | text | you | Another name for it
scheduleExpressionTimezone | text | you | The time zone that it is meant in, such as `Europe/Berlin`. Default: UTC
startDate | text or number | you | No occurrence before this instant; a rate counts from it. Default of a rate: the
    next tick
endDate | text or number | you | No occurrence after this instant
flexibleTimeWindow | number | you | Minutes, up to 1440: starts come so much later at most, spread by `taskId`,
    those of one schedule always by as much
scheduleState | text | you, then Dynatick | `ENABLED` (the default) or `DISABLED`, which pauses it;
    `COMPLETED` and `FAILED` are Dynatick's to set
catchUp | text | you | Which late occurrences are made: `latest` (the default), `all` or `none`
overlap | text | you | While the occurrence before has not ended: `skip` (the default), `allow` or `bufferOne`
expectedWithinSeconds | whole number | you | Seconds, from 1 to 86400, after the time at which an occurrence may start:
    one that has not completed by then is reported as overdue
stateReason | text | you | Why it is paused
revision | number | Dynatick | 1, and one more when a schedule is put in the place of another: part of its tasks' ids
definition | map | Dynatick | The definition that the next occurrence follows from, to notice a change
definedAt | text | Dynatick | Since when it is defined so
nextOccurrenceAt | text | Dynatick | The next occurrence
bufferedOccurrenceAt | text | Dynatick | An occurrence that waits until the one before has ended
lastOccurrenceAt | text | Dynatick | The latest occurrence that was made
lastTaskId | text | Dynatick | That task
awaited | list of maps | Dynatick | The occurrences that are expected to complete by an instant, and have not yet:
    `dueAt`, `expectedBy`
missed | list of maps | Dynatick | The latest occurrences that were not made: `from`, `until`, `occurrences`, `reason`
missedOccurrences | number | Dynatick | How many there were in all, but for those of pauses
dueBefore | list of maps | Dynatick | Definitions that were replaced while several occurrences were due,
    until those are made
earlier | list of maps | Dynatick | The timing before its definition changed, for the history:
    the latest changes
ranNow | list of texts | Dynatick | The latest occurrences that run-now made
backfilled | list of maps | Dynatick | The latest ranges that were backfilled: `from`, `until`, and the
    definition of then
""")


def page() -> str:
    """As code and template are now. Raises ValueError for an attribute that nobody has described, or that is gone."""
    if set(_ATTRIBUTES) != OWN_ATTRIBUTES:
        raise ValueError(f"attributes that are not described here, or are gone: {set(_ATTRIBUTES) ^ OWN_ATTRIBUTES}")
    if set(_OF_SCHEDULES) != SCHEDULE_ATTRIBUTES:
        raise ValueError(
            f"attributes that are not described here, or are gone: {set(_OF_SCHEDULES) ^ SCHEDULE_ATTRIBUTES}"
        )
    table = template.load()["Resources"][template.TABLE]["Properties"]
    return markdown.page(
        "The attributes of a task",
        "The same in the table, the API, the command line and the Python client, where names are in snake case.\n"
        "Instants are RFC 3339 in UTC. Whatever else a row holds is yours and reaches the action untouched. Rows\n"
        "whose `taskId` begins with `_dynatick#` are no tasks.",
        markdown.table(
            ["Attribute", "Type", "Set by", "What it is"],
            [(f"`{name}`", *said) for name, said in _ATTRIBUTES.items()],
        ),
        "## Of a schedule",
        "Beside `taskId` and the attributes of the tasks that it makes: `action`, `payload`, `retryPolicy`,\n"
        "`timeoutSeconds`, your own.",
        markdown.table(
            ["Attribute", "Type", "Set by", "What it is"],
            [(f"`{name}`", *said) for name, said in _OF_SCHEDULES.items()],
        ),
        "## Indexes",
        markdown.table(["Index", "Key", "Also in it"], [_index(one) for one in table["GlobalSecondaryIndexes"]]),
    )


def _index(index: dict[str, Any]) -> tuple[str, str, str]:
    keys = ", ".join(f"`{key['AttributeName']}`" for key in index["KeySchema"])
    projected = ", ".join(f"`{name}`" for name in index["Projection"]["NonKeyAttributes"])
    return f"`{index['IndexName']}`", keys, projected
