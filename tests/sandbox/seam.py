"""The seam: every request of this process to AWS passes here, and meets the faults that are set up.

It lies where botocore hands a signed request to its HTTP session, below the SDK's own retries and above the network, so
that whatever the product does about a fault is really done.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TextIO

from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from tests.sandbox.calls import Call, parse

from dynatick.store.wire import Connections

Send = Callable[[AWSPreparedRequest], AWSResponse]
Watcher = Callable[[Call, AWSPreparedRequest, Send], AWSResponse | None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is to go wrong.

    ``at``: the kind of call (see ``Call.kind``), ``any`` for all. Or, with ``fail before``, what the process says:
    ``log`` for a line of its log, ``metrics`` for its metrics. ``do``:
      kill before, kill after    SIGKILL, before the request is sent or once it was answered
      freeze before, freeze after   SIGSTOP, before the request is sent or once it was answered
      fail before     an internal server error, and nothing took effect
      lose answer     the connection breaks after it took effect
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
    frozen: Callable[[str], None] = lambda kind: None  # called just before the process stops itself
    invoked: Callable[[dict[str, Any]], None] | None = None  # gets asynchronous invocations, which then go nowhere
    watch: Watcher | None = None  # nearest to the engine
    met: Callable[[Fault, Call], None] = lambda fault, call: None  # called just before a fault is injected
    has_begun: Callable[[str], bool] = lambda task_id: True

    def __post_init__(self) -> None:
        self._armed: list[_Armed] = []
        self._lock = threading.Lock()
        self._dice = random.Random(self.seed)
        self._aside = threading.local()

    def arm(self, faults: Sequence[Fault]) -> None:
        """Replaces the faults in force."""
        with self._lock:
            self._armed = [_Armed(fault) for fault in faults]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What this thread sends meanwhile meets no fault."""
        self._aside.on = True
        try:
            yield
        finally:
            self._aside.on = False

    @contextmanager
    def installed(self) -> Iterator[Seam]:
        """Puts the seam into botocore, and into the store's own connections."""
        with self._before(URLLib3Session), self._before(Connections):
            yield self

    @contextmanager
    def over_output(self) -> Iterator[None]:
        """Puts the seam over standard output, where a function says its log and its metrics."""
        real = sys.stdout
        sys.stdout = _Output(real, self._before_saying)
        try:
            yield
        finally:
            sys.stdout = real

    def _before_saying(self, text: str) -> None:
        if text.isspace():
            return  # the end of a line
        said = Call(operation="metrics" if '"_aws"' in text else "log", body={})
        if self._met_by(said, said.kind):
            raise OSError(errno.EIO, "set up by a test")

    @contextmanager
    def _before(self, connections: type[Any]) -> Iterator[None]:
        real = connections.send

        def send(sender: Any, request: AWSPreparedRequest) -> AWSResponse:
            return self._send(request, lambda changed: real(sender, changed))

        connections.send = send
        try:
            yield
        finally:
            connections.send = real

    def _send(self, request: AWSPreparedRequest, real: Send) -> AWSResponse:
        if getattr(self._aside, "on", False):
            return real(request)
        target = _text(request.headers.get("X-Amz-Target", ""))
        body = request.body if isinstance(request.body, bytes) else None
        call = parse(target, request.url.partition("?")[0], body)
        if call is None:
            return real(request)
        send = self._unharmed(call, real)
        for fault in self._met_by(call, "any", call.kind):
            self.met(fault, call)
            send = self._with(fault, call, send)
        return send(request)

    def _unharmed(self, call: Call, real: Send) -> Send:
        """Sends a call that meets no fault."""

        def send(request: AWSPreparedRequest) -> AWSResponse:
            if call.kind == "invoke" and self.invoked is not None:
                self.invoked(call.body)
                return answer(request, 202, {})
            seen = self.watch(call, request, real) if self.watch is not None else None
            return seen or real(request)

        return send

    def _met_by(self, call: Call, *places: str) -> list[Fault]:
        """The faults of these places that a call meets."""
        met: list[Fault] = []
        with self._lock:
            for armed in self._armed:
                fault = armed.fault
                if fault.at not in places or not call.has(PARTS.get(fault.do)):
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
                time.sleep(0.01)
            match fault.do:
                case "kill before":
                    _die()
                case "kill after":
                    send(request)
                    _die()
                case "freeze before":
                    self._freeze(call.kind)
                case "freeze after":
                    answered = send(request)
                    self._freeze(call.kind)
                    return answered
                case "fail before":
                    return _error(request, 500, "InternalServerError")
                case "lose answer":
                    send(request)
                    raise ConnectionClosedError(endpoint_url=request.url)
                case "throttle":
                    return _error(request, 400, "ProvisionedThroughputExceededException")
                case "refuse":
                    return _error(request, 403, "AccessDeniedException")
                case "throttle parts":
                    return self._throttle_parts(request, call, fault.amount, send)
                case "leave keys":
                    return self._leave_keys(request, call, fault.amount, send)
                case "refuse parts":
                    return self._refuse_parts(request, call, fault.amount, send)
                case "small pages":
                    return send(_changed(request, call.body | {"Limit": int(fault.amount)}))
                case "wait":
                    time.sleep(fault.amount)
                case unknown:
                    raise ValueError(unknown)
            return send(request)

        return faulty

    def _freeze(self, kind: str) -> None:
        """Returns once the process was thawed. The signal may stop this thread a moment later than it is sent.

        SIGCONT must be blocked in all threads, and so waits for this one (worker.py). A handler would not do: it runs
        in the main thread alone, which the kernel need not choose, nor Python wake up.
        """
        self.frozen(kind)
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.sigwait({signal.SIGCONT})

    def _chosen(self, number: int, share: float) -> set[int]:
        """Some of so many, at least one."""
        with self._lock:
            return {n for n in range(number) if self._dice.random() < share} or {number - 1}

    def _throttle_parts(self, request: AWSPreparedRequest, call: Call, share: float, send: Send) -> AWSResponse:
        statements = call.body["Statements"]
        refused = self._chosen(len(statements), share)
        rest = [one for n, one in enumerate(statements) if n not in refused]
        answered: list[Any] = []
        if rest:
            response = send(_changed(request, call.body | {"Statements": rest}))
            if response.status_code != 200:
                return response
            answered = json.loads(response.content)["Responses"]
        error = {"Error": {"Code": "ThrottlingError", "Message": "set up by a test"}}
        others = iter(answered)
        return answer(
            request, 200, {"Responses": [error if n in refused else next(others) for n in range(len(statements))]}
        )

    def _leave_keys(self, request: AWSPreparedRequest, call: Call, share: float, send: Send) -> AWSResponse:
        ((table, wanted),) = call.body["RequestItems"].items()
        left = self._chosen(len(wanted["Keys"]), share)
        rest = [key for n, key in enumerate(wanted["Keys"]) if n not in left]
        found: dict[str, Any] = {"Responses": {table: []}, "UnprocessedKeys": {}}
        if rest:
            response = send(_changed(request, {"RequestItems": {table: wanted | {"Keys": rest}}}))
            if response.status_code != 200:
                return response
            found = json.loads(response.content)
        keys = [key for n, key in enumerate(wanted["Keys"]) if n in left]
        found["UnprocessedKeys"] = {table: wanted | {"Keys": keys}}
        return answer(request, 200, found)

    def _refuse_parts(self, request: AWSPreparedRequest, call: Call, share: float, send: Send) -> AWSResponse:
        entries = call.body["Entries"]
        refused = self._chosen(len(entries), share)
        rest = [entry for n, entry in enumerate(entries) if n not in refused]
        if call.operation == "PutEvents":
            return _refuse_events(request, rest, refused, send)
        found: dict[str, Any] = {"Successful": []}
        if rest:
            response = send(_changed(request, call.body | {"Entries": rest}))
            if response.status_code != 200:
                return response
            found = json.loads(response.content)
        found["Failed"] = found.get("Failed", []) + [
            {"Id": entries[n]["Id"], "Code": "InternalError", "SenderFault": False} for n in sorted(refused)
        ]
        return answer(request, 200, found)


def _refuse_events(request: AWSPreparedRequest, rest: list[Any], refused: set[int], send: Send) -> AWSResponse:
    """EventBridge answers by position."""
    taken: list[Any] = []
    if rest:
        response = send(_changed(request, {"Entries": rest}))
        if response.status_code != 200:
            return response
        taken = json.loads(response.content)["Entries"]
    others = iter(taken)
    error = {"ErrorCode": "InternalFailure", "ErrorMessage": "set up by a test"}
    answers = [error if n in refused else next(others) for n in range(len(rest) + len(refused))]
    return answer(request, 200, {"FailedEntryCount": len(refused), "Entries": answers})


class _Output:
    """Standard output with something before each write."""

    def __init__(self, real: TextIO, before: Callable[[str], None]) -> None:
        self._real, self._before = real, before

    def write(self, text: str) -> int:
        self._before(text)
        return self._real.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Raw(BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def answer(request: AWSPreparedRequest, status: int, content: dict[str, Any]) -> AWSResponse:
    """An answer as a service gives it."""
    headers: Any = {"Content-Type": "application/x-amz-json-1.0"}
    return AWSResponse(request.url, status, headers, _Raw(json.dumps(content).encode()))


def _error(request: AWSPreparedRequest, status: int, code: str) -> AWSResponse:
    return answer(request, status, {"__type": f"com.amazonaws#{code}", "message": "set up by a test"})


def _changed(request: AWSPreparedRequest, body: dict[str, Any]) -> AWSPreparedRequest:
    """The request with another body. Its signature no longer fits, which the emulator does not mind."""
    content, headers = json.dumps(body).encode(), HeadersDict(request.headers)
    headers["Content-Length"] = str(len(content))
    return AWSPreparedRequest(request.method, request.url, headers, content, request.stream_output)


def _die() -> None:
    """Does not return, although the signal may end this thread a moment later than it is sent."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
