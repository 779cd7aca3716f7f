"""An index that lags behind its table, and polls that take their time. Both are interceptors of the seam."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Mapping
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from tests.sandbox.calls import Call
from tests.sandbox.folder import SharedFolder
from tests.sandbox.locks import locked
from tests.sandbox.seam import Seam, Send, respond

POLLS = "polls"  # a file in the folder: a byte for each poll
MAX_WAIT = 10  # real seconds that a poll waits for what is in flight
_PROJECTED = (
    "taskId", "taskDateTime", "outcome", "action", "dueAt", "finishedAt", "error", "scheduleId", "nextAttemptAt",
    "lateMilliseconds",
)  # fmt: skip


class LaggingIndex:
    """Buckets are read as they were a while ago: by a number of seconds between the ``limits``, which is different
    for each change of each row. A process that only writes needs no limits.

    A file keeps what each row became, and when; all processes of a test that write append to it. A Query is answered
    from it: rows not there yet are missing, rows that have ended or moved since still show as they were.
    """

    def __init__(self, seam: Seam, table: str, folder: SharedFolder, client: Any, *limits: float) -> None:
        self._seam, self._table, self._folder, self._client, self._limits = seam, table, folder, client, limits
        self._file = folder.path / "index"
        self._file.touch()

    def __call__(self, call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
        if call.operation == "Query":
            return respond(request, self._query(call.body))
        if not call.writes:
            return None
        response = send(request)
        self._note({write.task_id for write in call.writes})
        return response

    def _note(self, ids: set[str]) -> None:
        """Reads the rows back and appends them; one process at a time, so that the file is in order."""
        with self._file.open("a") as file, locked(file), self._seam.bypassed():
            keys = [{"taskId": {"S": task_id}} for task_id in sorted(ids)]
            found = self._client.batch_get_item(RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}})
            rows = {row["taskId"]["S"]: row for row in found["Responses"][self._table]}
            at = self._folder.now()
            for task_id in sorted(ids):
                row = rows.get(task_id, {})
                entry = {name: row[name] for name in _PROJECTED if name in row}
                file.write(json.dumps({"id": task_id, "at": at, "entry": entry}) + "\n")
            file.flush()

    def _query(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The bucket as the index shows it now, on one page."""
        bucket, now = body["ExpressionAttributeValues"][":bucket"], self._folder.now()
        shown: dict[str, dict[str, Any]] = {}
        with self._file.open() as file, locked(file, shared=True):
            lines = file.read().splitlines()
        for line in lines:
            noted = json.loads(line)
            lag = random.Random(f"{noted['id']} {noted['at']}").uniform(*self._limits)
            if noted["at"] + lag <= now:
                shown[noted["id"]] = noted["entry"]
        only_open = "attribute_not_exists" in body.get("FilterExpression", "")
        items = [
            entry
            for _, entry in sorted(shown.items())
            if entry.get("taskDateTime") == bucket and not (only_open and "S" in entry.get("outcome", {}))
        ]
        return {"Items": items, "Count": len(items), "ScannedCount": len(items)}


class Polls:
    """Counts the polls of all processes. ``seconds``: by how much each moves the shared clock, as a slow table would.

    The clock of such a world all but stands still otherwise, so that how long polling takes does not depend on the
    machine. And it stands while a task is in flight: on a machine that stalls for a second, its lease would expire.
    """

    def __init__(self, folder: SharedFolder, seconds: float, index: LaggingIndex | None) -> None:
        self._file = os.open(folder.path / POLLS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._clock, self._seconds, self._index = folder.clock, seconds, index
        self._in_flight: set[str] = set()  # the tasks that this process has claimed, and has not recorded
        self._changed = threading.Condition()

    def __call__(self, call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
        ids = {write.task_id for write in call.writes}
        with self._changed:
            if call.kind == "claim":
                self._in_flight |= ids
            elif call.kind == "poll":
                self._count()
        response = self._index(call, request, send) if self._index is not None else None
        if call.kind == "record":
            with self._changed:
                self._in_flight -= ids
                self._changed.notify_all()
        return response

    def _count(self) -> None:
        os.write(self._file, b".")
        if self._seconds:
            # wait: some may have been claimed by another process, which nothing here says
            if not self._changed.wait_for(lambda: not self._in_flight, MAX_WAIT):
                self._in_flight.clear()  # another process has claimed them
            with locked(self._file):  # other processes move it, too
                self._clock.forward(seconds=self._seconds)
