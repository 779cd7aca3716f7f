"""Classifies a request to AWS, by what is sent: a claim, a record, a poll …"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynatick.engine.cursor import cursor_id
from dynatick.engine.limits import limits_id
from dynatick.engine.rates import rate_record_id
from dynatick.engine.settings import SETTINGS_ID

_CURSOR = cursor_id(0).removesuffix("0")
_LIMITS = limits_id(0).removesuffix("0")
_RATE = rate_record_id("")
_SET = re.compile(r'"((?:[^"]|"")+)"=(\?)?')
_ASSIGNED = re.compile(r"(#\w+) = (?:(:\w+)|#\w+ \+ :\w+)")


@dataclass(frozen=True, kw_only=True)
class Write:
    """A row that a request would change. ``sets``: the values of its attributes (None: computed by DynamoDB)."""

    task_id: str
    sets: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request to AWS."""

    operation: str
    body: dict[str, Any]
    writes: Sequence[Write] = ()

    @property
    def kind(self) -> str:
        """What the request means to the engine. A batch is of one kind."""
        match self.operation:
            case "Query":
                return "poll"
            case "GetItem" | "BatchGetItem" | "Scan":
                return "read"
            case "PutItem":
                if self.writes[0].task_id.startswith(_LIMITS):
                    return _kind_of(self.writes[0])
                return "own row" if self.writes[0].task_id.startswith("_dynatick#") else "put"
            case "DeleteItem":
                return "delete"
            case "SendMessageBatch":
                return "messages" if _is_of_a_task(self.body["Entries"][0]) else "dead letters"
            case "PutEvents":
                return "events"
            case "Invoke":
                return "invoke"
            case "TransactWriteItems":
                return "commit" if any("outcome" in write.sets for write in self.writes) else "member"
            case "UpdateItem" | "BatchExecuteStatement":
                return _kind_of(self.writes[0])
        return self.operation


def parse(target: str, url: str, body: bytes | None) -> Call | None:
    """The call that a request makes; None for one that meets no faults."""
    operation = target.rpartition(".")[2]
    if not operation and url.endswith("/invocations"):
        return Call(operation="Invoke", body=json.loads(body or b"{}"))
    if not operation or body is None:
        return None
    content = json.loads(body)
    match operation:
        case "PutItem":
            row = content["Item"]
            writes = [Write(task_id=row["taskId"]["S"], sets=row)]
        case "DeleteItem":
            writes = [Write(task_id=content["Key"]["taskId"]["S"])]
        case "UpdateItem":
            writes = [_update(content)]
        case "BatchExecuteStatement":
            writes = [_statement(one) for one in content["Statements"]]
        case "TransactWriteItems":  # a change of a member, or an outcome with a handler's own effects
            parts = [(kind, part) for one in content["TransactItems"] for kind, part in one.items()]
            writes = [_update(part) for kind, part in parts if kind == "Update" and "taskId" in part["Key"]]
            items = [part["Item"] for kind, part in parts if kind == "Put" and "taskId" in part["Item"]]
            writes += [Write(task_id=item["taskId"]["S"], sets=item) for item in items]
        case _:
            writes = []
    return Call(operation=operation, body=content, writes=writes)


def _is_of_a_task(entry: Mapping[str, Any]) -> bool:
    """Returns whether a message was sent by a task, and is no dead letter."""
    return "dynatickTaskId" in entry.get("MessageAttributes", {})


def _kind_of(write: Write) -> str:
    names = set(write.sets)
    if write.task_id.startswith(_CURSOR):
        return "release shard" if "NULL" in write.sets["lease"] else "acquire shard"  # a renewal is one of these too
    if write.task_id.startswith(_LIMITS):
        if "NULL" in write.sets["lease"]:
            return "release limits"
        return "hold limits" if write.sets["held"]["L"] else "acquire limits"
    if write.task_id.startswith(_RATE):
        return "reserve starts"
    if write.task_id == SETTINGS_ID:
        return "own row"
    if {"taskId", "batchId"} <= names:
        return "extract"
    if names == {"pack"}:
        return "checkpoint"
    if {"taskId", "lease"} <= names:
        return "occurrence"
    if names & {"nextOccurrenceAt", "lastOccurrenceAt", "bufferedOccurrenceAt"} and "definition" not in names:
        return "advance"  # a schedule, to its next run
    if "taskDateTime" in names and names <= {"taskDateTime", "awaited"}:
        return "advance"  # from or to a deadline
    if {"lease", "leaseUntil", "attempt"} <= names:
        return "reclaim" if "attempts" in names else "claim"
    if names - {"pack"} == {"attempt", "leaseUntil"}:
        return "release"
    if names == {"taskDateTime", "movedTo"}:
        return "move"
    if "completeBy" in names or write.sets.get("outcome") == {"S": "completed"}:
        return "record"  # also of a task that is to be completed later
    if {"leaseUntil", "taskDateTime"} <= names and "attempt" not in names and "deferrals" not in names:
        return "by token"  # a heartbeat, or a failure
    if write.sets.get("outcome") == {"S": "cancelled"}:
        return "cancel"
    if "outcome" in names:
        return "reject" if "taskDateTime" in names else "record"
    if {"status", "taskDateTime", "nextAttemptAt"} <= names:
        return "record"  # of a task that is tried again, or that its handler reschedules
    return "insert" if "taskId" in names else "other"


def _update(body: Mapping[str, Any]) -> Write:
    names, values = body["ExpressionAttributeNames"], body.get("ExpressionAttributeValues", {})
    assigned = _ASSIGNED.findall(body["UpdateExpression"].partition("REMOVE")[0])
    return Write(
        task_id=body["Key"]["taskId"]["S"],
        sets={names[name]: values.get(value) for name, value in assigned},
    )


def _statement(statement: Mapping[str, Any]) -> Write:
    text, parameters = statement["Statement"], statement["Parameters"]
    if text.startswith("INSERT"):
        names = re.findall(r"'((?:[^']|'')+)':\?", text)
        row = dict(zip(names, parameters, strict=True))
        return Write(task_id=row["taskId"]["S"], sets=row)
    sets, _, where = text.partition(" SET ")[2].partition(" WHERE ")
    given = iter(parameters)
    found = {name: next(given) if mark else None for name, mark in _SET.findall(sets.partition(" REMOVE ")[0])}
    assert where.startswith('"taskId"=?')
    return Write(task_id=next(given)["S"], sets=found)
