"""The inside of a sandbox: a process that runs one of the two functions for one event after another.

Each line of its standard input is an invocation, as JSON: ``event``, ``life`` (seconds until it would be killed), and
``faults`` to meet meanwhile. Each line that it answers says what came of it; then the process stops itself, as Lambda
freezes it, until the next one begins. What the function logs goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.sandbox.seam import Fault, Seam

from dynatick import wiring
from dynatick_stack.template import ROOT


@dataclass(kw_only=True)
class Context:
    """What Lambda hands to a handler."""

    hard_end: datetime
    clock: Callable[[], datetime]
    function_name: str
    memory_limit_in_mb: int = 1024
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:dynatick"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return int((self.hard_end - self.clock()) / timedelta(milliseconds=1))


class Answers:
    """Standard output is for answers alone: what anybody else prints from now on joins the logs."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, **what: Any) -> None:
        self._file.write(json.dumps(what) + "\n")


def serve(
    function: str,
    *,
    clock: Callable[[], datetime],
    seam: Seam,
    answers: Answers,
    during: Callable[[float], AbstractContextManager[None]] = lambda life: nullcontext(),
) -> None:
    """Runs the function's real entry point, as Lambda imports it, until standard input ends.

    ``during`` is entered for each invocation, with its life in seconds of the clock.
    """
    wiring.utc_now = clock
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})  # the seam waits for it; later threads inherit this
    with seam.installed(), seam.over_output():
        sys.path.insert(0, str(ROOT / "functions" / function))
        app = importlib.import_module("app")
        answers.say(ready=True)
        for line in sys.stdin:
            order = json.loads(line)
            seam.hits.clear()
            seam.arm([Fault(**fault) for fault in order["faults"]])
            context = Context(hard_end=clock() + timedelta(seconds=order["life"]), clock=clock, function_name=function)
            try:
                with during(order["life"]):
                    returned = app.handler(order["event"], context)
            except Exception as error:  # as Lambda reports a function's error
                traceback.print_exc()
                answers.say(error=f"{type(error).__name__}: {error}", hits=seam.hits)
            else:
                answers.say(returned=returned, hits=seam.hits)
            os.kill(os.getpid(), signal.SIGSTOP)
