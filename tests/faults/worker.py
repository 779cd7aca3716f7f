"""A sandbox of the fault tests: python -m tests.faults.worker processor (see tests.sandbox.worker)."""

from __future__ import annotations

import os
import sys
from functools import partial

import boto3
from tests.faults.lag import Lag, LaggingIndex
from tests.faults.polls import Polls
from tests.sandbox.folder import SharedFolder
from tests.sandbox.seam import Seam
from tests.sandbox.wake_ups import Queue
from tests.sandbox.watch import Watch
from tests.sandbox.worker import Answers, serve

from dynatick import wiring
from dynatick.engine.cursor import Cursor

LAG = "DYNATICK_FAULTS_LAG"  # least and most seconds that the index lags, if it does
POLL_SECONDS = "DYNATICK_FAULTS_POLL_SECONDS"  # of the shared clock, that each poll takes
NO_LEASE = "DYNATICK_FAULTS_NO_SHARD_LEASE"  # the shard lease is worth nothing (protocol 16)


def main(function: str) -> None:
    answers = Answers()
    here = SharedFolder.from_env(os.environ)
    folder, clock = here.path, here.clock
    if os.environ.get(NO_LEASE):
        Cursor.is_leased = lambda self, now: False  # type: ignore[method-assign]

    seam = Seam(seed=os.getpid(), frozen=lambda kind: answers.say(frozen=kind))
    index = None
    if limits := os.environ.get(LAG):
        minimum, maximum = map(float, limits.split())
        lag = Lag(minimum=minimum, maximum=maximum)
        client, table = boto3.client("dynamodb"), os.environ["DYNATICK_TABLE"]
        index = LaggingIndex(seam, client, table, folder / "index", lag, clock)
    wiring.QueueWakeUps = partial(Queue, here)  # type: ignore[assignment, misc]
    Watch(here, seam, Polls(folder, clock, float(os.environ.get(POLL_SECONDS, 0)), index))
    serve(function, clock=clock, seam=seam, answers=answers)


if __name__ == "__main__":
    main(sys.argv[1])
