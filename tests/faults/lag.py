"""An index that lags behind its table: buckets are read as they were a while ago, each row after a delay of its own.

A journal keeps what each row became, and when; all processes of a test append to it. A Query is answered from it: rows
not there yet are missing, rows that have ended or moved since still show as they were.
"""

from __future__ import annotations

import fcntl
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from tests.sandbox.calls import Call
from tests.sandbox.seam import Seam, Send, answer

from dynatick.domain.instants import EPOCH

_PROJECTED = (
    "taskId", "taskDateTime", "outcome", "action", "dueAt", "finishedAt", "error", "scheduleId", "nextAttemptAt",
    "lateMilliseconds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Lag:
    """Between ``least`` and ``most`` seconds, differently for each change of each row."""

    minimum: float
    maximum: float

    def of(self, task_id: str, written: float) -> float:
        return random.Random(f"{task_id} {written}").uniform(self.minimum, self.maximum)


class LaggingIndex:
    """What ``Seam.watch`` calls, in every process that writes or queries."""

    def __init__(
        self, seam: Seam, client: Any, table: str, journal: Path, lag: Lag, clock: Callable[[], datetime]
    ) -> None:
        self._seam, self._client, self._table = seam, client, table
        self._journal, self._lag, self._clock = journal, lag, clock
        journal.touch()

    def __call__(self, call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
        if call.operation == "Query":
            return answer(request, 200, self._query(call.body))
        if not call.writes:
            return None
        answered = send(request)
        self._note({write.task_id for write in call.writes})
        return answered

    def _note(self, ids: set[str]) -> None:
        """Reads the rows back and appends them; one process at a time, so that the journal is in order."""
        with self._journal.open("a") as file, self._seam.aside():
            fcntl.flock(file, fcntl.LOCK_EX)
            keys = [{"taskId": {"S": task_id}} for task_id in sorted(ids)]
            found = self._client.batch_get_item(RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}})
            rows = {row["taskId"]["S"]: row for row in found["Responses"][self._table]}
            at = (self._clock() - EPOCH).total_seconds()
            for task_id in sorted(ids):
                row = rows.get(task_id, {})
                entry = {name: row[name] for name in _PROJECTED if name in row}
                file.write(json.dumps({"id": task_id, "at": at, "entry": entry}) + "\n")

    def _query(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The bucket as the index shows it now, on one page."""
        bucket = body["ExpressionAttributeValues"][":bucket"]["S"]
        now = (self._clock() - EPOCH).total_seconds()
        shown: dict[str, dict[str, Any]] = {}
        with self._journal.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            lines = file.read().splitlines()
        for line in lines:
            noted = json.loads(line)
            if noted["at"] + self._lag.of(noted["id"], noted["at"]) <= now:
                shown[noted["id"]] = noted["entry"]
        only_open = "attribute_not_exists" in body.get("FilterExpression", "")
        items = [
            entry
            for _, entry in sorted(shown.items())
            if entry.get("taskDateTime") == {"S": bucket} and not (only_open and "S" in entry.get("outcome", {}))
        ]
        return {"Items": items, "Count": len(items), "ScannedCount": len(items)}
