"""The tasks that are inserted on this machine, from the table's stream: through any interface, in any form.

The emulator's stream lacks what is written in batches (PartiQL): such tasks are counted by the size of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Grid
from dynatick.domain.instants import EPOCH
from dynatick.domain.normalise import Defaults, action_name, task_time
from dynatick.domain.row import RowView
from dynatick.domain.schedule import is_schedule
from dynatick.domain.task import Row, is_own_row
from dynatick.errors import InvalidInput
from dynatick.store.codec import decode
from dynatick_stack.local import LocalStack

_GRID, _DEFAULTS = Grid(), Defaults()


@dataclass(frozen=True, kw_only=True)
class Insertion:
    """An inserted task or schedule."""

    at: datetime  # in whole seconds, rounded down
    task_id: str
    action: str
    due_at: datetime | None = None  # None for a schedule, and if there is a problem
    expression: str | None = None  # of a schedule
    problem: str | None = None  # why it can't be made a task

    @classmethod
    def of(cls, row: Row, at: datetime) -> Insertion:
        """A row as it was put into the table."""
        task_id, action = RowView(row).task_id, str(row.get(attr.ACTION) or _DEFAULTS.action)
        if is_schedule(row):
            expression = next((str(row[name]) for name in attr.RECURRENCE if name in row), "")
            return cls(at=at, task_id=task_id, action=action, expression=expression)
        try:
            due_at = task_time(row, now=at, grid=_GRID, defaults=_DEFAULTS).due_at
            return cls(at=at, task_id=task_id, action=action_name(row, _DEFAULTS), due_at=due_at)
        except InvalidInput as error:
            return cls(at=at, task_id=task_id, action=action, problem=str(error))


@dataclass(frozen=True, kw_only=True)
class Inserted:
    """What was inserted since the last time. ``others``: how many beside, in batches or as occurrences of schedules."""

    tasks: Sequence[Insertion] = ()
    others: int = 0
    since: datetime


NOTHING_INSERTED = Inserted(since=EPOCH)


class InsertionReader:
    """Reads each insertion once, from the beginning of the table. At most a page at a time: others need the emulator
    too."""

    def __init__(self, stack: LocalStack) -> None:
        self._table = stack.table
        self._dynamodb: Any = stack.client("dynamodb")
        self._streams: Any = stack.client("dynamodbstreams")
        self._iterator = self._begin("TRIM_HORIZON")
        self._known = 0  # rows of the table: those of the stream, and those reported beside
        self._read_at = datetime.now(UTC)

    def read(self) -> Inserted:
        rows = int(self._dynamodb.describe_table(TableName=self._table)["Table"]["ItemCount"])
        records = self._records()
        self._known += sum(_ADDS[record["eventName"]] for record in records)
        others = 0
        if not records:  # else the number of rows may be of a moment before or after them
            others, self._known = max(0, rows - self._known), rows
        since, self._read_at = self._read_at, datetime.now(UTC)
        return Inserted(tasks=list(_insertions(records)), others=others, since=since)

    def _records(self) -> list[Mapping[str, Any]]:
        try:
            page = self._streams.get_records(ShardIterator=self._iterator)
        except self._streams.exceptions.ExpiredIteratorException:
            # This machine has slept for a quarter of an hour, and the emulator with it.
            self._iterator = self._begin("LATEST")
            return []
        self._iterator = page["NextShardIterator"]
        return list(page["Records"])

    def _begin(self, kind: str) -> str:
        arn = self._dynamodb.describe_table(TableName=self._table)["Table"]["LatestStreamArn"]
        (shard,) = self._streams.describe_stream(StreamArn=arn)["StreamDescription"][
            "Shards"
        ]  # the emulator's only one
        answer = self._streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType=kind)
        return str(answer["ShardIterator"])


_ADDS = {"INSERT": 1, "MODIFY": 0, "REMOVE": -1}


def _insertions(records: list[Mapping[str, Any]]) -> Iterator[Insertion]:
    for record in records:
        change = record["dynamodb"]
        if record["eventName"] == "REMOVE" or is_own_row(change["Keys"][attr.TASK_ID]["S"]):
            continue
        row = decode(change["NewImage"])
        # A plain put over a task that has a status is a new task.
        was_replaced = attr.STATUS not in row and attr.STATUS in change.get("OldImage", {})
        if record["eventName"] == "INSERT" or was_replaced:
            yield Insertion.of(row, change["ApproximateCreationDateTime"].astimezone(UTC))
