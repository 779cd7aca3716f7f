"""What a process writes down about its calls to AWS: the faults they met, and what the engine did."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from tests.sandbox.calls import Call, Write, parse
from tests.sandbox.folder import SharedFolder, append
from tests.sandbox.journal import Met, Recorded
from tests.sandbox.seam import Fault, Seam, Send, Watcher

from dynatick.domain.instants import parse_instant

_WAITING = {"S": "scheduled"}
_DELAYS = ("freeze before", "freeze after", "wait")  # after which a call is made all the same


class Watch:
    """Hangs itself into a seam. ``nearer``: what would be there otherwise, and may answer a request itself."""

    def __init__(self, here: SharedFolder, seam: Seam, nearer: Watcher = lambda call, request, send: None) -> None:
        self._here, self._nearer = here, nearer
        seam.met, seam.watch, seam.invoked = self._met, self._watch, here.note_invocation
        seam.has_begun = self._has_begun

    def _met(self, fault: Fault, call: Call) -> None:
        ids = [write.task_id for write in call.writes] if call.kind == "record" and fault.do not in _DELAYS else []
        met = Met(pid=os.getpid(), fault=fault.do, call=call.kind, task_ids=ids)
        self._here.journal.add(met)

    def _has_begun(self, task_id: str) -> bool:
        return any(began.task_id == task_id for began in self._here.ledger.begun())

    def _watch(self, call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
        """Nearest to the engine: sees what it really answers, whether or not the product gets to hear it."""
        answered = self._nearer(call, request, send)
        if call.operation not in ("BatchExecuteStatement", "UpdateItem"):
            return answered
        answered = answered or send(request)
        if answered.status_code == 200:
            writes = _taken(call, request, answered)
            if call.kind == "record" and writes:
                not_before = {write.task_id: at for write in writes if (at := _next_attempt(write)) is not None}
                ids = [write.task_id for write in writes]
                recorded = Recorded(pid=os.getpid(), task_ids=ids, not_before=not_before)
                self._here.journal.add(recorded)
            if call.operation == "BatchExecuteStatement":
                append(self._here.unstreamed, [w.task_id for w in writes if w.sets.get("status") == _WAITING])
        return answered


def _next_attempt(write: Write) -> float | None:
    """When the task may be tried again, in seconds since 1970, if the write says so."""
    value = write.sets.get("nextAttemptAt")
    return None if value is None else parse_instant(value["S"], "nextAttemptAt").timestamp()


def _taken(call: Call, request: AWSPreparedRequest, answered: AWSResponse) -> Sequence[Write]:
    """The writes that took effect. A fault may have left out some of the call's."""
    if call.operation == "UpdateItem":
        return call.writes
    body = request.body if isinstance(request.body, bytes) else b"{}"
    sent = parse("DynamoDB_20120810.BatchExecuteStatement", "", body)
    responses = json.loads(answered.content)["Responses"]
    return [
        write for write, response in zip(sent.writes if sent else (), responses, strict=True) if "Error" not in response
    ]
