"""A sandbox of the soak: python -m tests.soak.worker processor."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial

from tests.sandbox.folder import SharedFolder
from tests.sandbox.seam import Seam
from tests.sandbox.wake_ups import Queue
from tests.sandbox.watch import Watch
from tests.sandbox.worker import Answers, serve

from dynatick import wiring


def main(function: str, seed: str, skew: str) -> None:
    """``skew``: seconds by which this host's clock is off; at most two, as the protocol allows."""
    answers = Answers()
    here = SharedFolder.from_env(os.environ)
    off = timedelta(seconds=float(skew))
    seam = Seam(seed=int(seed))
    wiring.QueueWakeUps = partial(Queue, here)  # type: ignore[assignment, misc]
    Watch(here, seam)

    def clock() -> datetime:
        return here.clock() + off

    @contextmanager
    def ended_in_time(life: float) -> Iterator[None]:
        """The kernel ends this process when Lambda would, whatever it is doing by then."""
        if speed := here.clock.speed:  # by a clock that stands no time goes by
            signal.setitimer(signal.ITIMER_REAL, life / speed)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    serve(function, clock=clock, seam=seam, answers=answers, during=ended_in_time)


if __name__ == "__main__":
    main(*sys.argv[1:])
