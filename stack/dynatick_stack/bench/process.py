"""One process of the processor: `python -m dynatick_stack.bench.process SETUP`, which `invocations` starts.

SETUP is a `Setup` as JSON. Each line of standard input is an event, as JSON. A line of standard output is
`{"ready": true}`, at first; `{"start": event}`, an invocation that the processor asks for; or `{"ended": …}` with an
`Ended`, when an event is done.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick_stack.bench.installation import Clock, Installation
from dynatick_stack.bench.peak import peak_rss_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a process works on, and how."""

    endpoint: str
    table: str
    ahead_seconds: float  # of the machine's clock
    threads: int
    max_workers: int
    task_seconds: float  # that each task waits
    life_seconds: float  # of an invocation


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What one invocation did."""

    executions: int
    peak_rss_bytes: int  # of the process, so far
    still_running: int  # threads; Lambda would have to end the process


class Waiting:
    """An action that waits, and counts its executions."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock, self._executions = seconds, threading.Lock(), 0

    def run(self, task: Task, context: ActionContext) -> object:
        with self._lock:
            self._executions += 1
        if self._seconds:
            time.sleep(self._seconds)
        return None

    def taken(self) -> int:
        """Executions since the last call."""
        with self._lock:
            taken, self._executions = self._executions, 0
        return taken


class Invoked(Installation):
    """The installation as one process has it: another invocation is another process's."""

    def invoke(self, event: Mapping[str, object]) -> None:
        say(start=event)


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    setup = Setup(**json.loads(sys.argv[1]))
    waiting = Waiting(setup.task_seconds)
    installation = Invoked(
        setup.endpoint,
        setup.table,
        clock=Clock(datetime.now(UTC) + timedelta(seconds=setup.ahead_seconds)),
        threads=setup.threads,
        max_workers=setup.max_workers,
        action=waiting,
    )
    say(ready=True)
    for line in sys.stdin:
        hard_end = installation.clock() + timedelta(seconds=setup.life_seconds)
        installation.processor.handle(json.loads(line), hard_end=hard_end)
        running = installation.processor.running
        say(ended=asdict(Ended(executions=waiting.taken(), peak_rss_bytes=peak_rss_bytes(), still_running=running)))


if __name__ == "__main__":
    main()
