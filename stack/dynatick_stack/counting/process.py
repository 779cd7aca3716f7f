"""Starts the counting endpoint in a process of its own, and asks it what it has counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

from dynatick_stack.counting.counts import Counts


@dataclass(frozen=True, slots=True)
class Engine:
    """A running endpoint."""

    url: str
    pid: int

    def counts(self) -> Counts:
        """What was counted since its start."""
        return Counts.from_json(self._told()["counts"])

    def cpu_seconds(self) -> float:
        """Its own CPU time so far."""
        return float(self._told()["cpu_seconds"])

    def examples(self) -> list[dict[str, Any]]:
        """Each kind of PartiQL statement that came at the head of a batch, as its latest example."""
        found: list[dict[str, Any]] = self._told()["examples"]
        return found

    def _told(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/counts") as answer:
            found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def counting(upstream: str | None = None, region: str = "us-east-1") -> Iterator[Engine]:
    """An endpoint with no tables, or one that counts what it passes on to ``upstream``; it ends with the block."""
    command = [sys.executable, "-m", "dynatick_stack.counting", "--region", region]
    if upstream is not None:
        command += ["--upstream", upstream]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError("the counting endpoint did not start; see above")
            yield Engine(url, process.pid)
        finally:
            process.kill()
