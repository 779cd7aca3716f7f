"""Notes what a process's calls to AWS met and recorded: faults, claims, results."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from tests.sandbox.calls import Call, Write, parse
from tests.sandbox.folder import SharedFolder
from tests.sandbox.journal import Began, FaultInjected, Recorded, append
from tests.sandbox.seam import Fault, Interceptor, Seam, Send

from dynatick.domain.instants import parse_instant

_WAITING = {"S": "scheduled"}
_DELAYS = ("freeze before", "freeze after", "wait")  # after which a call is made all the same


class Watch:
    """Installs itself in a seam. ``inner``: another interceptor, which may answer a request itself."""

    def __init__(self, folder: SharedFolder, seam: Seam, inner: Interceptor = lambda call, request, send: None) -> None:
        self._folder, self._inner = folder, inner
        seam.on_fault, seam.interceptor = self._on_fault, self._intercept
        seam.on_invoke = lambda event: append(folder.invocations, event)
        seam.has_begun = lambda task_id: any(began.task_id == task_id for began in folder.journal.of(Began))

    def _on_fault(self, fault: Fault, call: Call) -> None:
        ids = [write.task_id for write in call.writes] if call.kind == "record" and fault.do not in _DELAYS else []
        self._folder.journal.add(FaultInjected(pid=os.getpid(), fault=fault.do, call=call.kind, task_ids=ids))

    def _intercept(self, call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
        """Sees what AWS really answers, whether or not the product gets that."""
        response = self._inner(call, request, send)
        if call.operation not in ("BatchExecuteStatement", "UpdateItem"):
            return response
        response = response or send(request)
        writes = _taken(call, request, response) if response.status_code == 200 else ()
        if call.kind == "record" and writes:
            not_before = {write.task_id: at for write in writes if (at := _next_attempt(write)) is not None}
            ids = [write.task_id for write in writes]
            self._folder.journal.add(Recorded(pid=os.getpid(), task_ids=ids, not_before=not_before))
        if call.operation == "BatchExecuteStatement":
            waiting = (write.task_id for write in writes if write.sets.get("status") == _WAITING)
            append(self._folder.unstreamed, *waiting)
        return response


def _next_attempt(write: Write) -> float | None:
    """Returns when the task may be tried again, in seconds since 1970, if the write has it."""
    value = write.sets.get("nextAttemptAt")
    return None if value is None else parse_instant(value["S"], "nextAttemptAt").timestamp()


def _taken(call: Call, request: AWSPreparedRequest, response: AWSResponse) -> Sequence[Write]:
    """The writes that took effect. A fault may have left out some of the call's."""
    if call.operation == "UpdateItem":
        return call.writes
    sent = parse("DynamoDB_20120810.BatchExecuteStatement", "", request.body)  # type: ignore[arg-type]
    responses = json.loads(response.content)["Responses"]
    return [write for write, one in zip(sent.writes if sent else (), responses, strict=True) if "Error" not in one]
