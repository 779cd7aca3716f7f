"""A sandbox of Lambda, as a process: runs one of the two functions for one event after another.

    python -m tests.faults.worker processor

Each line of its standard input is an invocation, as JSON: ``event``, ``life`` (seconds until it would be killed), and
``faults`` to meet meanwhile. Each line that it answers says what came of it. What the function logs goes to stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from tests.faults.clock import SharedClock
from tests.faults.handlers import FOLDER
from tests.faults.lag import Lag, LaggingIndex
from tests.faults.seam import Fault, Seam

from dynatick import wiring
from dynatick.engine.cursor import Cursor

LAG = "DYNATICK_FAULTS_LAG"  # least and most seconds that the index lags, if it does
NO_LEASE = "DYNATICK_FAULTS_NO_SHARD_LEASE"  # the shard lease is worth nothing (protocol 16)
FUNCTIONS = Path(__file__).parents[2] / "functions"


@dataclass
class Context:
    """What Lambda hands to a handler."""

    hard_end: datetime
    clock: SharedClock
    function_name: str
    memory_limit_in_mb: int = 1024
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:dynatick"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return int((self.hard_end - self.clock()) / timedelta(milliseconds=1))


def main(function: str) -> None:
    # Standard output is for answers alone; what anybody prints joins the logs.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")

    folder = Path(os.environ[FOLDER])
    clock = SharedClock(folder / "clock")
    wiring.utc_now = clock
    if os.environ.get(NO_LEASE):
        Cursor.is_held = lambda self, now: False  # type: ignore[method-assign]

    def note_invocation(event: dict[str, Any]) -> None:
        with (folder / "started").open("a") as file:
            file.write(json.dumps(event) + "\n")

    seam = Seam(seed=os.getpid(), frozen=lambda kind: say(frozen=kind), invoked=note_invocation)
    signal.signal(signal.SIGCONT, lambda *_: seam.thawed.set())
    if limits := os.environ.get(LAG):
        least, most = map(float, limits.split())
        lag = Lag(least=least, most=most)
        client, table = boto3.client("dynamodb"), os.environ["DYNATICK_TABLE"]
        seam.watch = LaggingIndex(seam, client, table, folder / "journal", lag, clock)
    with seam.installed():
        sys.path.insert(0, str(FUNCTIONS / function))
        import app  # type: ignore[import-not-found]  # the function's entry point, as Lambda imports it

        say(ready=True)
        for line in sys.stdin:
            order = json.loads(line)
            seam.hits.clear()
            seam.arm([Fault(**fault) for fault in order["faults"]])
            context = Context(clock() + timedelta(seconds=order["life"]), clock, function)
            try:
                returned = app.handler(order["event"], context)
            except Exception as error:  # as Lambda reports a function's error
                traceback.print_exc()
                say(error=f"{type(error).__name__}: {error}", hits=seam.hits)
            else:
                say(returned=returned, hits=seam.hits)


if __name__ == "__main__":
    main(sys.argv[1])
