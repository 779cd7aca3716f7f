"""A sandbox of the fault tests: python -m tests.faults.worker processor (see tests.sandbox.worker)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import boto3
from tests.faults.handlers import FOLDER
from tests.faults.lag import Lag, LaggingIndex
from tests.faults.polls import Polls
from tests.sandbox.clock import SharedClock
from tests.sandbox.seam import Seam
from tests.sandbox.worker import Answers, serve

from dynatick.engine.cursor import Cursor

LAG = "DYNATICK_FAULTS_LAG"  # least and most seconds that the index lags, if it does
POLL_SECONDS = "DYNATICK_FAULTS_POLL_SECONDS"  # of the shared clock, that each poll takes
NO_LEASE = "DYNATICK_FAULTS_NO_SHARD_LEASE"  # the shard lease is worth nothing (protocol 16)


def main(function: str) -> None:
    answers = Answers()
    folder = Path(os.environ[FOLDER])
    clock = SharedClock(folder / "clock")
    if os.environ.get(NO_LEASE):
        Cursor.is_leased = lambda self, now: False  # type: ignore[method-assign]

    def note_invocation(event: dict[str, Any]) -> None:
        with (folder / "started").open("a") as file:
            file.write(json.dumps(event) + "\n")

    seam = Seam(seed=os.getpid(), frozen=lambda kind: answers.say(frozen=kind), invoked=note_invocation)
    index = None
    if limits := os.environ.get(LAG):
        least, most = map(float, limits.split())
        lag = Lag(least=least, most=most)
        client, table = boto3.client("dynamodb"), os.environ["DYNATICK_TABLE"]
        index = LaggingIndex(seam, client, table, folder / "journal", lag, clock)
    seam.watch = Polls(folder, clock, float(os.environ.get(POLL_SECONDS, 0)), index)
    serve(function, clock=clock, seam=seam, answers=answers)


if __name__ == "__main__":
    main(sys.argv[1])
