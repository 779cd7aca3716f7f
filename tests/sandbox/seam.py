"""The seam: every request of this process to AWS passes here, and meets the faults that are set up.

It lies where botocore hands a signed request to its HTTP session, below the SDK's own retries and above the network, so
that whatever the product does about a fault is really done.
"""

from __future__ import annotations

import errno
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from unittest.mock import patch

from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from tests.sandbox.calls import Call, parse
from tests.sandbox.locks import end, stop
from tests.sandbox.trace import Tracer

from dynatick.store.wire import Connections

Send = Callable[[AWSPreparedRequest], AWSResponse]
Interceptor = Callable[[Call, AWSPreparedRequest, Send], AWSResponse | None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is to go wrong.

    ``at``: the kind of call (see ``Call.kind``), ``any`` for all. Or, with ``fail before``, what the process writes:
    ``log`` for a line of its log, ``metrics`` for its metrics. ``do``:
      kill before, kill after    SIGKILL, before the request is sent or once it was answered
      freeze before, freeze after   SIGSTOP, before the request is sent or once it was answered
      fail before     an internal server error, and nothing took effect
      lose response   the connection breaks after it took effect
      throttle        refused as a whole, before it took effect
      refuse          refused for good: access denied
      throttle parts  the share ``amount`` of a batch is refused, the others are carried out
      leave keys      the share ``amount`` of a BatchGetItem is left unprocessed
      refuse parts    the share ``amount`` of a batch of messages or events is refused
      small pages     at most ``amount`` entries a page
      wait            ``amount`` seconds before it is sent
    """

    at: str
    do: str
    skip: int = 0  # calls that pass first
    times: int | None = 1  # None: always
    chance: float = 1.0
    amount: float = 0.0
    after: str = ""  # a task: calls that write its row pass, and others wait until an attempt of it has begun


PARTS = {"throttle parts": "Statements", "leave keys": "RequestItems", "refuse parts": "Entries"}
"""What a call must consist of to meet a fault of its parts."""
ERRORS = {
    "fail before": (500, "InternalServerError"),
    "throttle": (400, "ProvisionedThroughputExceededException"),
    "refuse": (403, "AccessDeniedException"),
}


@dataclass
class _Armed:
    fault: Fault
    met: int = 0
    done: int = 0


@dataclass
class Seam:
    """The faults in force, and how often each was injected."""

    seed: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    on_freeze: Callable[[str], None] = lambda kind: None  # called just before the process stops itself
    on_invoke: Callable[[dict[str, Any]], None] | None = None  # gets asynchronous invocations, which then go nowhere
    on_fault: Callable[[Fault, Call], None] = lambda fault, call: None  # called just before a fault is injected
    interceptor: Interceptor | None = None  # nearest to AWS, but for the tracer
    tracer: Tracer | None = None  # notes what AWS is really sent and answers
    has_begun: Callable[[str], bool] = lambda task_id: True

    def __post_init__(self) -> None:
        self._armed: list[_Armed] = []
        self._lock = threading.Lock()
        self._dice = random.Random(self.seed)
        self._bypass = threading.local()

    def arm(self, faults: Sequence[Fault]) -> None:
        """Replaces the faults in force."""
        with self._lock:
            self._armed = [_Armed(fault) for fault in faults]

    @contextmanager
    def bypassed(self) -> Iterator[None]:
        """Lets this thread's calls pass without a fault meanwhile."""
        self._bypass.on = True
        try:
            yield
        finally:
            self._bypass.on = False

    @contextmanager
    def installed(self) -> Iterator[Seam]:
        """Puts the seam into botocore, and into the store's own connections."""
        with self._over(URLLib3Session), self._over(Connections):
            yield self

    def _over(self, connections: type[Any]) -> AbstractContextManager[Any]:
        real = connections.send
        return patch.object(
            connections, "send", lambda sender, request: self._send(request, lambda changed: real(sender, changed))
        )

    def over_output(self) -> AbstractContextManager[Any]:
        """Puts the seam over standard output, where a function writes its log and its metrics."""
        real = sys.stdout.write

        def write(text: str) -> int:
            output = Call(operation="metrics" if '"_aws"' in text else "log", body={})
            if not text.isspace() and self._met_by(output, output.kind):  # space is the end of a line
                raise OSError(errno.EIO, "set up by a test")
            return real(text)

        return patch.object(sys.stdout, "write", write)

    def _send(self, request: AWSPreparedRequest, real: Send) -> AWSResponse:
        if getattr(self._bypass, "on", False):
            return self._to_aws(request, real)
        target = request.headers.get("X-Amz-Target", "")
        body = request.body if isinstance(request.body, bytes) else None
        call = parse(target.decode() if isinstance(target, bytes) else target, request.url.partition("?")[0], body)
        if call is None:
            return real(request)
        send = self._unharmed(call, real)
        for fault in self._met_by(call, "any", call.kind):
            self.on_fault(fault, call)
            send = self._with(fault, call, send)
        return send(request)

    def _unharmed(self, call: Call, real: Send) -> Send:
        """Sends a call that meets no fault."""

        def send(request: AWSPreparedRequest) -> AWSResponse:
            if call.kind == "invoke" and self.on_invoke is not None:
                self.on_invoke(call.body)
                return respond(request, {}, 202)
            reached: list[AWSPreparedRequest] = []

            def to_aws(changed: AWSPreparedRequest) -> AWSResponse:
                reached.append(changed)
                return self._to_aws(changed, real)

            answered = self.interceptor(call, request, to_aws) if self.interceptor is not None else None
            if answered is not None and not reached and self.tracer is not None and call.operation == "Query":
                self.tracer.poll(call.body, json.loads(answered.content))
            return answered or to_aws(request)

        return send

    def _to_aws(self, request: AWSPreparedRequest, real: Send) -> AWSResponse:
        return real(request) if self.tracer is None else self.tracer.send(request, real)

    def _met_by(self, call: Call, *places: str) -> list[Fault]:
        """The faults of these places that a call meets."""
        met: list[Fault] = []
        with self._lock:
            for armed in self._armed:
                fault = armed.fault
                if fault.at not in places or (fault.do in PARTS and PARTS[fault.do] not in call.body):
                    continue
                if fault.after in {write.task_id for write in call.writes}:
                    continue
                if fault.times is not None and armed.done >= fault.times:
                    continue
                armed.met += 1
                if armed.met <= fault.skip or self._dice.random() >= fault.chance:
                    continue
                armed.done += 1
                self.hits[f"{fault.do} @ {call.kind}"] += 1
                met.append(fault)
        return met

    def _with(self, fault: Fault, call: Call, send: Send) -> Send:
        """``send`` with a fault around it."""

        def faulty(request: AWSPreparedRequest) -> AWSResponse:
            while fault.after and not self.has_begun(fault.after):
                time.sleep(0.01)  # wait: between two looks at the condition
            match fault.do:
                case "kill before":
                    end(signal.SIGKILL)
                case "kill after":
                    send(request)
                    end(signal.SIGKILL)
                case "freeze before":
                    self._freeze(call.kind)
                case "freeze after":
                    response = send(request)
                    self._freeze(call.kind)
                    return response
                case "fail before" | "throttle" | "refuse":
                    status, code = ERRORS[fault.do]
                    return respond(request, {"__type": f"com.amazonaws#{code}", "message": "set up by a test"}, status)
                case "lose response":
                    send(request)
                    raise ConnectionClosedError(endpoint_url=request.url)
                case "throttle parts" | "leave keys" | "refuse parts":
                    return self._without_parts(request, call, fault.amount, send)
                case "small pages":
                    return send(_changed(request, call.body | {"Limit": int(fault.amount)}))
                case "wait":
                    time.sleep(fault.amount)  # wait: the fault
                case unknown:
                    raise ValueError(unknown)
            return send(request)

        return faulty

    def _freeze(self, kind: str) -> None:
        """Returns once the process was thawed."""
        self.on_freeze(kind)
        stop()

    def _without_parts(self, request: AWSPreparedRequest, call: Call, share: float, send: Send) -> AWSResponse:
        """Sends a batch without a share of its parts, at least one, and answers for those as its service does."""
        parts, with_parts = _parts_of(call)
        with self._lock:
            left_out = {n for n in range(len(parts)) if self._dice.random() < share} or {len(parts) - 1}
        response: dict[str, Any] = {}
        if rest := [part for n, part in enumerate(parts) if n not in left_out]:
            answered = send(_changed(request, with_parts(rest)))
            if answered.status_code != 200:
                return answered
            response = json.loads(answered.content)
        refused = [part for n, part in enumerate(parts) if n in left_out]
        match call.operation:
            case "BatchGetItem":
                response = {"Responses": {}, **response, "UnprocessedKeys": with_parts(refused)["RequestItems"]}
            case "SendMessageBatch":
                failed = [{"Id": part["Id"], "Code": "InternalError", "SenderFault": False} for part in refused]
                response = {"Successful": [], **response, "Failed": response.get("Failed", []) + failed}
            case operation:
                name, error = BY_POSITION[operation]
                others = iter(response.get(name, []))
                response = {name: [error if n in left_out else next(others) for n in range(len(parts))]}
                if operation == "PutEvents":
                    response["FailedEntryCount"] = len(refused)
        return respond(request, response)


BY_POSITION = {
    "BatchExecuteStatement": ("Responses", {"Error": {"Code": "ThrottlingError", "Message": "set up by a test"}}),
    "PutEvents": ("Entries", {"ErrorCode": "InternalFailure", "ErrorMessage": "set up by a test"}),
}


def _parts_of(call: Call) -> tuple[list[Any], Callable[[list[Any]], dict[str, Any]]]:
    """The parts of a batch, and what makes the body of a request for some of them."""
    if call.operation == "BatchGetItem":
        ((table, wanted),) = call.body["RequestItems"].items()
        return wanted["Keys"], lambda parts: {"RequestItems": {table: wanted | {"Keys": parts}}}
    name = "Statements" if "Statements" in call.body else "Entries"
    return call.body[name], lambda parts: call.body | {name: parts}


class _Raw(BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def respond(request: AWSPreparedRequest, content: dict[str, Any], status: int = 200) -> AWSResponse:
    """A response as a service gives it."""
    headers: Any = {"Content-Type": "application/x-amz-json-1.0"}
    return AWSResponse(request.url, status, headers, _Raw(json.dumps(content).encode()))


def _changed(request: AWSPreparedRequest, body: dict[str, Any]) -> AWSPreparedRequest:
    """The request with another body. Its signature no longer fits, which the emulator does not mind."""
    content, headers = json.dumps(body).encode(), HeadersDict(request.headers)
    headers["Content-Length"] = str(len(content))
    return AWSPreparedRequest(request.method, request.url, headers, content, request.stream_output)
