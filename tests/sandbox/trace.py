"""The trace of a world (docs/proof.md): what its processes wrote, polled and ran, in the order in which it took effect.

Each request that matters is sent under a lock that all processes of the world share, and is noted, with its answer,
before another one is sent. What a fault does around it, such as a lost response or the end of the process, happens
outside of that.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.httpsession import URLLib3Session
from tests.sandbox.folder import SharedFolder
from tests.sandbox.journal import append
from tests.sandbox.locks import locked
from tests.trace import Event, plain, row_of

from dynatick.actions.handlers import Handler
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError, RateLimited
from dynatick.store.codec import decode
from dynatick.store.wire import Connections

CLIENT, HAND, RESTORE = "client", "hand", "restore"
FILE = "trace"
HEADER = {"lag": 120.0, "skew": 4.0, "late": 30.0, "attempts": 4}  # of the trace of real processes
NOTED = (
    "PutItem", "DeleteItem", "UpdateItem", "BatchWriteItem", "BatchExecuteStatement", "TransactWriteItems", "Query",
    "Scan", "SendMessageBatch",
)  # fmt: skip
_REFUSED = ("ConditionalCheckFailed", "DuplicateItem")
_ASSIGNED = re.compile(r"(#\w+) = (?:#\w+ \+ )?(:\w+)")
_ADDED = re.compile(r"(#\w+) = #\w+ \+ (:\w+)")
_PART = re.compile(
    r"attribute_not_exists ?\((?P<absent>#\w+)\)|(?P<name>#\w+) (?P<sign>=|>=) (?P<value>:\w+)"
    r"|attribute_exists ?\(#\w+\)"
)
_SET = re.compile(r'"((?:[^"]|"")+)"=(\?|[^,]+)')
_WHERE = re.compile(r'"((?:[^"]|"")+)"(=\?| IS MISSING|>=(\d+))')


class Tracer:
    """Of one process. ``folder``: that of its world. ``is_outside``: the process runs no function, but is a client."""

    def __init__(self, folder: SharedFolder, table: str, *, is_outside: bool = False) -> None:
        self._folder, self.table, self._is_outside = folder, table, is_outside
        self.file = folder.path / FILE
        self._lock = os.open(folder.path / f"{FILE}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._environment = f"{os.getpid()}.{time.time_ns()}"  # another process may get its number later
        self._invocation = ""
        self._numbers = 0
        self._mine = threading.local()
        self._requests = Requests(table, os.environ.get("DYNATICK_DEAD_LETTER_QUEUE_URL"))
        self.hand = HAND  # who it is that writes without a condition
        self.ends_at = math.inf  # when Lambda ends it, by the clock of the trace

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Keeps all processes of the world from whatever is noted. One that is killed meanwhile has no request under
        way."""
        with locked(self._lock):
            if self._folder.now() >= self.ends_at:
                os.kill(os.getpid(), signal.SIGALRM)
                threading.Event().wait()  # the signal may end this thread a moment later
            yield

    def _add(self, *events: Mapping[str, Any]) -> None:
        append(self.file, *({"at": self._folder.now(), **event} for event in events))

    # -- processes -----------------------------------------------------------------------------------------------------

    def begin(self, kind: str, event: Mapping[str, Any], *, until: float, skew: float) -> None:
        """An invocation begins in this process. Its number is that of each thread that is first seen in it."""
        self._numbers += 1
        self._invocation = self._mine.number = f"{self._environment}.{self._numbers}"
        with self.in_order():
            self._add({"e": "process", "by": self._invocation, "in": self._environment, "kind": kind, "until": until,
                       "skew": skew, "order": order_of(kind, event), "pid": os.getpid()})  # fmt: skip

    def end(self, *, raised: bool, left: int) -> None:
        with self.in_order():
            self._add({"e": "ended", "by": self._invocation, "raised": raised, "left": left})
        self.ends_at = math.inf

    def died(self, pid: int) -> None:
        """Notes that a process has died."""
        with self.in_order():
            self._add({"e": "died", "pid": pid})

    def wake_ups(self, orders: Sequence[object]) -> None:
        with self.in_order():
            self._add({"e": "sent", "by": self._by, "orders": orders})

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """What is put and deleted meanwhile is a restore of the table."""
        with self.in_order():
            self._add({"e": "restore", "by": RESTORE})
        self.hand = RESTORE
        try:
            yield
        finally:
            self.hand = HAND

    @property
    def _by(self) -> str:
        """The invocation in which this thread began."""
        number: str = self._mine.__dict__.setdefault("number", self._invocation)
        return number

    def _sender(self, body: bytes) -> str:
        """Who sends a request."""
        return outsider(body, self.hand) if self._is_outside else self._by

    @contextmanager
    def over_handlers(self) -> Iterator[None]:
        """Notes when an action of the user begins, and how it ends."""
        run = Handler.run

        def noted(handler: Handler, task: Task, context: ActionContext) -> object:
            of = {"by": self._by, "id": task.task_id, "token": str(task.lease)}
            with self.in_order():
                self._add({"e": "begin", **of, "attempt": context.attempt, "run": context.run})
            result = "error"
            try:
                returned = run(handler, task, context)
                result = "ok"
                return returned
            except RateLimited:
                raise
            except PermanentError:
                result = "permanent"
                raise
            finally:
                with self.in_order():
                    self._add({"e": "end", **of, "result": result})

        with patch.object(Handler, "run", noted):
            yield

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(self, request: AWSPreparedRequest, real: Any) -> AWSResponse:
        """Sends a request and notes it."""
        target = request.headers.get("X-Amz-Target", "")
        operation = (target.decode() if isinstance(target, bytes) else str(target)).rpartition(".")[2]
        if operation not in NOTED or not isinstance(request.body, bytes):
            return real(request)
        body, by = json.loads(request.body), self._sender(request.body)
        with self.in_order():
            at = self._folder.now()
            self._add({"e": "request", "pid": os.getpid()})
            response = real(request)
            answer = json.loads(response.content or b"{}")
            events = list(self._requests.events(operation, body, response.status_code, answer, at))
            self._add(*({"by": by, **event} for event in events), {"e": "answer", "pid": os.getpid()})
        return response

    def poll(self, body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Notes a poll that an index of the test has answered."""
        with self.in_order():
            self._add(*({"by": self._by, **event} for event in _polled(body, answer)))


def outsider(body: bytes, hand: str = HAND) -> str:
    """What has sent a request that is of no function: a client, or a person by hand."""
    return CLIENT if b"ondition" in body or b"Statements" in body else hand


class Requests:
    """What requests to a table and a queue of dead letters are as events."""

    def __init__(self, table: str, dead_letters: str | None) -> None:
        self._table, self._dead_letters = table, dead_letters
        self._tokens: set[str] = set()  # of the transactions

    def events(
        self, operation: str, body: Mapping[str, Any], status: int, answer: Mapping[str, Any], at: float
    ) -> Iterator[Event]:
        code = "" if status == 200 else str(answer.get("__type", "?"))
        if status != 200 and not any(one in code for one in _REFUSED):
            return
        ok = status == 200
        match operation:
            case "Query" if ok:
                yield from ({**event, "at": at} for event in _polled(body, answer))
            case "Scan":
                if body["TableName"] == self._table and "FilterExpression" in body:
                    yield _scanned(body, answer)
            case "SendMessageBatch" if ok:
                yield from _messages(body, answer, self._dead_letters)
            case "BatchExecuteStatement":
                for statement, one in zip(body["Statements"], answer["Responses"], strict=True):
                    error = one.get("Error", {}).get("Code", "")
                    if not error or any(refused in error for refused in _REFUSED):
                        yield _statement(statement, not error)
            case "BatchWriteItem" if ok:
                assert not answer.get("UnprocessedItems"), "which of them took effect is not noted"
                for one in body["RequestItems"].get(self._table, ()):
                    kind, part = next(iter(one.items()))
                    yield _single(kind.replace("Request", "Item"), part, ok)
            case "TransactWriteItems":
                token = str(body.get("ClientRequestToken"))
                if ok and token not in self._tokens:
                    self._tokens.add(token)
                    for part in body["TransactItems"]:
                        for kind, one in part.items():
                            if one["TableName"] == self._table and kind in ("Put", "Update", "Delete"):
                                yield _single(f"{kind}Item", one, ok)
            case _ if body.get("TableName") == self._table:
                yield _single(operation, body, ok)


def _single(operation: str, body: Mapping[str, Any], ok: bool) -> Event:
    if operation == "PutItem":
        row = decode(body["Item"])
        kind = "create" if "attribute_not_exists" in body.get("ConditionExpression", "") else "put"
        return {"e": kind, "id": row["taskId"], "row": row_of(row), "ok": ok}
    task_id, conditions = body["Key"]["taskId"]["S"], _conditions(body)
    if operation == "DeleteItem":
        return {"e": "delete", "id": task_id, "if": conditions, "ok": ok}
    names, values = body["ExpressionAttributeNames"], body.get("ExpressionAttributeValues", {})
    setting, _, removing = body["UpdateExpression"].partition("REMOVE")
    added = {name for name, _ in _ADDED.findall(setting)}
    given = {}
    for name, value in _ASSIGNED.findall(setting):
        number = _value(names[name], values[value])
        given[names[name]] = {"plus": number} if name in added else number
    removed = [names[name] for name in re.findall(r"#\w+", removing)]
    return {"e": "write", "id": task_id, "if": conditions, "set": given, "remove": removed, "ok": ok}


def _conditions(body: Mapping[str, Any]) -> list[list[Any]]:
    names, values = body.get("ExpressionAttributeNames", {}), body.get("ExpressionAttributeValues", {})
    found: list[list[Any]] = []
    for part in _PART.finditer(body.get("ConditionExpression", "")):
        if part["absent"]:
            found.append([names[part["absent"]], "absent"])
        elif part["name"]:
            name = names[part["name"]]
            found.append([name, "is" if part["sign"] == "=" else "at least", _value(name, values[part["value"]])])
    return found


def _statement(statement: Mapping[str, Any], ok: bool) -> Event:
    text, parameters = statement["Statement"], iter(statement["Parameters"])
    if text.startswith("INSERT"):
        names = [name.replace("''", "'") for name in re.findall(r"'((?:[^']|'')+)':\?", text)]
        row = decode(dict(zip(names, parameters, strict=True)))
        return {"e": "create", "id": row["taskId"], "row": row_of(row), "ok": ok}
    setting, _, where = text.partition(" SET ")[2].partition(" WHERE ")
    setting, *removing = setting.split(" REMOVE ")
    given: dict[str, Any] = {}
    for name, value in _SET.findall(setting):
        plain_name = name.replace('""', '"')
        given[plain_name] = (
            _value(plain_name, next(parameters)) if value == "?" else {"plus": int(value.rpartition("+")[2])}
        )
    conditions: list[list[Any]] = []
    task_id = ""
    for name, how, minimum in _WHERE.findall(where):
        if how == "=?" and not task_id:
            task_id = next(parameters)["S"]
        elif how == "=?":
            conditions.append([name, "is", _value(name, next(parameters))])
        else:
            conditions.append([name, "at least", int(minimum)] if minimum else [name, "absent"])
    removed = [name.strip('"').replace('""', '"') for name in removing]
    return {"e": "write", "id": task_id, "if": conditions, "set": given, "remove": removed, "ok": ok}


def _polled(body: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[Event]:
    """A page of a bucket; nothing for a query that asks for a part of it."""
    values, filtered = body.get("ExpressionAttributeValues", {}), body.get("FilterExpression", "")
    if body.get("KeyConditionExpression") != "#bucket = :bucket" or filtered == "#outcome = :outcome":
        return
    entries = [[one["taskId"]["S"], one.get("outcome", {}).get("S")] for one in answer.get("Items", ())]
    yield {
        "e": "poll", "bucket": values[":bucket"]["S"], "of": "open" if filtered else "all", "entries": entries,
        "after": body.get("ExclusiveStartKey", {}).get("taskId", {}).get("S"),
        "through": answer.get("LastEvaluatedKey", {}).get("taskId", {}).get("S"),
    }  # fmt: skip


def _scanned(body: Mapping[str, Any], answer: Mapping[str, Any]) -> Event:
    """A page of what has not ended in the whole table."""
    after, through = body.get("ExclusiveStartKey", {}), answer.get("LastEvaluatedKey", {})
    return {"e": "scan", "ids": [one["taskId"]["S"] for one in answer["Items"]],
            "after": after.get("taskId", {}).get("S"), "through": through.get("taskId", {}).get("S")}  # fmt: skip


def _messages(body: Mapping[str, Any], answer: Mapping[str, Any], dead_letters: str | None) -> Iterator[Event]:
    """Dead letters, or wake-ups; what tasks send to queues of their own is neither."""
    taken = {one["Id"] for one in answer.get("Successful", ())}
    texts = [one["MessageBody"] for one in body["Entries"] if one["Id"] in taken]
    if body["QueueUrl"] == dead_letters:
        bodies = [json.loads(text) for text in texts]
        ids = [one["taskId"] for one in bodies if isinstance(one, Mapping) and "taskId" in one]
        if ids:
            yield {"e": "letters", "ids": ids}
    elif orders := [json.loads(text) for text in texts if text.startswith('{"dynatick"')]:
        yield {"e": "sent", "orders": orders}


def _value(name: str, value: Mapping[str, Any]) -> Any:
    return plain(name, decode({name: dict(value)})[name])


def order_of(kind: str, event: object) -> object:
    """What an invocation is for, as a trace has it."""
    if not isinstance(event, Mapping):
        return None
    records = event.get("Records")
    if kind == "scheduler" and isinstance(records, list):
        images = [decode(one["dynamodb"]["NewImage"]) for one in records if "NewImage" in one.get("dynamodb", {})]
        return {"stream": [[plain(name, row.get(name)) for name in ("taskId", "taskDateTime")] for row in images]}
    if isinstance(records, list):
        try:
            json.loads(records[0]["body"])
        except (KeyError, ValueError, TypeError, IndexError):
            return None
    return event


# -- of the process of the tests ---------------------------------------------------------------------------------------

_worlds: dict[str, Tracer] = {}  # by the names of their tables


@contextmanager
def traced(folder: SharedFolder, table: str, header: Mapping[str, Any]) -> Iterator[Tracer]:
    """Traces what this process does to a world's table, as a client or by hand."""
    tracer = _worlds[table] = Tracer(folder, table, is_outside=True)
    now = {"at": folder.now()}
    append(
        folder.path / FILE,
        {"e": "trace", **header},
        *({"e": "process", "by": kind, "kind": kind, **now} for kind in (CLIENT, HAND, RESTORE)),
    )
    try:
        with _over(URLLib3Session), _over(Connections):
            yield tracer
    finally:
        del _worlds[table]
        os.close(tracer._lock)


@contextmanager
def _over(connections: type[Any]) -> Iterator[None]:
    real = connections.send

    def send(sender: Any, request: AWSPreparedRequest) -> AWSResponse:
        body = request.body if isinstance(request.body, bytes) else b""
        tracer = next((one for table, one in _worlds.items() if table.encode() in body), None)
        if tracer is None:
            return real(sender, request)  # type: ignore[no-any-return]
        return tracer.send(request, lambda changed: real(sender, changed))

    with patch.object(connections, "send", send):
        yield


def events_of(path: Path) -> Iterator[Event]:
    """The events of a finished trace. Raises CutOff if a process was killed while a request of it was under way."""
    last: dict[int, str] = {}
    requested: set[int] = set()
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            pid = event.pop("pid", None)
            match event["e"]:
                case "request":
                    requested.add(pid)
                case "answer":
                    requested.discard(pid)
                case "died":
                    if pid in last:
                        yield {**event, "by": last.pop(pid)}
                case kind:
                    if kind == "process" and pid is not None:
                        last[pid] = event["by"]
                    yield event
    if requested:
        raise CutOff(f"processes {sorted(requested)} were killed while a request was under way")


class CutOff(Exception):
    """It is not known whether a request took effect."""
