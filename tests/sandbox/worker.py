"""The inside of a sandbox: a process that runs one of the two functions (forks.py begins it).

The first line of its standard input is JSON: the ``function`` and its ``environ``. Each further one is an invocation:
``event``, ``timeout`` (seconds), and ``faults`` to meet meanwhile. Each line of its standard output says what came of
one; then the process stops itself, as Lambda freezes it, until the next one begins. What the function logs goes to
stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import boto3
from tests.sandbox.folder import SharedFolder
from tests.sandbox.index import LaggingIndex, Polls
from tests.sandbox.journal import append
from tests.sandbox.locks import end, exits_without, stop
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.trace import Tracer
from tests.sandbox.watch import Watch

from dynatick import wiring
from dynatick.engine.cursor import Cursor
from dynatick_stack.template import ROOT

# Settings, by environment variables.
SEED = "DYNATICK_SANDBOX_SEED"  # of its faults, and of the jitter of its retries
SKEW = "DYNATICK_SANDBOX_SKEW"  # seconds by which this host's clock is off
FENCED = "DYNATICK_SANDBOX_FENCED"  # it is killed at the end of an invocation's time
LAG = "DYNATICK_SANDBOX_LAG"  # minimum and maximum seconds that the index lags, if it does
POLL_SECONDS = "DYNATICK_SANDBOX_POLL_SECONDS"  # of the shared clock, that each poll takes
NO_LEASE = "DYNATICK_SANDBOX_NO_SHARD_LEASE"  # the shard lease is worth nothing (protocol 16)
TRACED = "DYNATICK_SANDBOX_TRACED"  # what it does is written down, for proof/replay.py
QUEUE_DOWN = "DYNATICK_SANDBOX_WAKE_UP_QUEUE_DOWN"


@dataclass(kw_only=True)
class Context:
    """The context that Lambda hands to a handler."""

    hard_end: datetime
    worker: Worker
    function_name: str
    memory_limit_in_mb: int = 1024
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:dynatick"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return int((self.hard_end - self.worker.now()) / timedelta(milliseconds=1))


class FileQueue:
    """The queue of wake-ups, as a file from which a world delivers them."""

    def __init__(self, folder: SharedFolder, tracer: Tracer | None, *_: object, **__: object) -> None:
        self._folder, self._tracer = folder, tracer

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        if os.environ.get(QUEUE_DOWN):
            return len(wake_ups)
        append(self._folder.wake_ups, *([event, at.timestamp()] for event, at in wake_ups))
        if self._tracer is not None:
            self._tracer.wake_ups([event for event, _ in wake_ups])
        return 0


class Worker:
    def __init__(self, function: str, environ: Mapping[str, str]) -> None:
        # Standard output is for responses alone: what else is printed from now on joins the logs.
        self._output = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._function = function
        self._clock = SharedFolder.from_env(environ).clock
        self._skew = timedelta(seconds=float(environ.get(SKEW, 0)))
        self._is_fenced = FENCED in environ
        seed = int(environ[SEED])
        random.seed(seed)
        self._seam = Seam(seed=seed, on_freeze=lambda kind: self._respond(frozen=kind))
        folder = SharedFolder.from_env(environ)
        self._tracer = Tracer(folder, environ["DYNATICK_TABLE"]) if TRACED in environ else None
        self._seam.tracer = self._tracer
        self._watch(folder, environ)

    def _watch(self, folder: SharedFolder, environ: Mapping[str, str]) -> None:
        index = None
        if limits := environ.get(LAG):
            client = boto3.client("dynamodb")
            index = LaggingIndex(self._seam, environ["DYNATICK_TABLE"], folder, client, *map(float, limits.split()))
        wiring.QueueWakeUps = partial(FileQueue, folder, self._tracer)  # type: ignore[assignment, misc]
        Watch(folder, self._seam, Polls(folder, float(environ.get(POLL_SECONDS, 0)), index))

    def now(self) -> datetime:
        return self._clock() + self._skew

    def _respond(self, **response: Any) -> None:
        self._output.write(json.dumps(response) + "\n")

    def serve(self) -> None:
        """Runs the function's real entry point, as Lambda imports it, until standard input ends."""
        wiring.utc_now = self.now
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})  # the seam waits for it; later threads inherit this
        with self._seam.installed(), self._seam.over_output(), exits_without(), self._over_handlers():
            sys.path.insert(0, str(ROOT / "functions" / self._function))
            app = importlib.import_module("app")
            self._respond(ready=True)
            for line in sys.stdin:
                self._run(app, **json.loads(line))
                stop()

    def _over_handlers(self) -> AbstractContextManager[None]:
        return nullcontext() if self._tracer is None else self._tracer.over_handlers()

    def _run(self, app: Any, event: Any, timeout: float, faults: Sequence[Mapping[str, Any]]) -> None:
        self._seam.hits.clear()
        self._seam.arm([Fault(**fault) for fault in faults])
        hard_end = self.now() + timedelta(seconds=timeout)
        # By its own clock: that of the trace is the shared one.
        until, fence = (hard_end - self._skew).timestamp(), None
        if self._tracer is not None:
            self._tracer.begin(self._function, event, until=until, skew=self._skew.total_seconds())
        if self._is_fenced and (speed := self._clock.speed):  # by a clock that stands no time goes by
            fence = self._fence(until, timeout / speed)
        try:
            returned = app.handler(event, Context(hard_end=hard_end, worker=self, function_name=self._function))
            response = {"returned": returned}
        except Exception as error:  # as Lambda reports a function's error
            traceback.print_exc()
            response = {"error": f"{type(error).__name__}: {error}"}
        finally:
            if fence is not None:
                fence.cancel()
        if self._tracer is not None:
            running = app.processor.running if self._function == "processor" else 0
            self._tracer.end(raised="error" in response, left=running)
        self._respond(**response, hits=self._seam.hits)

    def _fence(self, until: float, seconds: float) -> threading.Timer:
        """Ends this process in that many seconds of the machine's clock, unless it is cancelled."""
        if self._tracer is not None:
            self._tracer.ends_at = until
        fence = threading.Timer(seconds, end, [signal.SIGALRM])
        fence.daemon = True
        fence.start()
        return fence


def main() -> None:
    start = json.loads(sys.stdin.readline())
    os.environ.clear()
    os.environ.update(start["environ"])
    if os.environ.get(NO_LEASE):
        Cursor.is_leased = lambda self, now: False  # type: ignore[method-assign]
    Worker(start["function"], os.environ).serve()
