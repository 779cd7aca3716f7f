"""Invocations of the processor side by side, each in a process of its own, as Lambda runs them.

A process that has ended one serves the next. ``warm`` of them are there from the beginning: the cold starts of Lambda
go on side by side, those of one machine would wait for each other and be what is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Self

from dynatick_stack.bench.process import Ended, Setup


class Invocations:
    """Those of one installation. Its processes end with the block."""

    def __init__(self, setup: Setup, *, warm: int) -> None:
        self._command = [sys.executable, "-m", "dynatick_stack.bench.process", json.dumps(asdict(setup))]
        self._changed = threading.Condition()
        self._running, self._most_at_once = 0, 0
        self._processes: list[subprocess.Popen[str]] = []
        self._idle: list[subprocess.Popen[str]] = []
        self._ended: list[Ended] = []
        self._failed: list[str] = []
        self._warm = warm

    def __enter__(self) -> Self:
        self._idle = [self._process() for _ in range(self._warm)]
        for process in self._idle:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    @property
    def ended(self) -> list[Ended]:
        with self._changed:
            return list(self._ended)

    @property
    def most_at_once(self) -> int:
        return self._most_at_once

    @property
    def executions(self) -> int:
        return sum(one.executions for one in self.ended)

    @property
    def peak_rss_bytes(self) -> int:
        """Of the largest process."""
        return max(one.peak_rss_bytes for one in self.ended)

    def start(self, event: Mapping[str, object]) -> None:
        """Begins one, and does not wait for it."""
        with self._changed:
            self._running += 1
            self._most_at_once = max(self._most_at_once, self._running)
            process = self._idle.pop() if self._idle else None
        threading.Thread(target=self._run, args=(process, event), daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Until none runs any more, at most so long. Returns whether none does. Raises RuntimeError if one failed."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._running and not self._failed and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._failed:
                raise RuntimeError(f"an invocation failed, see above: {self._failed[0]}")
            return not self._running

    def _process(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with self._changed:
            self._processes.append(process)
        return process

    def _run(self, process: subprocess.Popen[str] | None, event: Mapping[str, object]) -> None:
        process = process or self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(event) + "\n")
        process.stdin.flush()
        ended = None
        for line in process.stdout:
            said = json.loads(line)
            if "start" in said:
                self.start(said["start"])
            elif "ended" in said:
                ended = Ended(**said["ended"])
                break
        with self._changed:
            self._running -= 1
            if ended is None or ended.still_running:
                self._failed.append(json.dumps(event))
            else:
                self._ended.append(ended)
                self._idle.append(process)
            self._changed.notify_all()
