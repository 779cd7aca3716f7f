"""What was asked for, added up by operation; and the process that counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from urllib.request import urlopen


@dataclass(slots=True)
class Count:
    """Requests, and what they asked for and cost. Not counted: what does not touch items, as CreateTable."""

    reads: int = 0  # calls that read
    writes: int = 0  # calls that write
    statements: int = 0  # items asked for or written: a batch has several
    read_units: float = 0
    write_units: float = 0
    refused: int = 0  # writes whose condition did not hold, and other refusals

    @property
    def calls(self) -> int:
        return self.reads + self.writes

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Count) -> Count:
        return Count(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


@dataclass(slots=True)
class Counts:
    """Counts by operation."""

    by_operation: dict[str, Count]

    @property
    def total(self) -> Count:
        return sum(self.by_operation.values(), Count())

    def add(self, operation: str, count: Count) -> None:
        self.by_operation[operation] = self.by_operation.get(operation, Count()) + count

    def __add__(self, other: Counts) -> Counts:
        both = Counts(dict(self.by_operation))
        for operation, count in other.by_operation.items():
            both.add(operation, count)
        return both

    def __sub__(self, earlier: Counts) -> Counts:
        since = {name: count - earlier.by_operation.get(name, Count()) for name, count in self.by_operation.items()}
        return Counts({name: count for name, count in since.items() if count.calls})

    def to_json(self) -> Mapping[str, Mapping[str, float]]:
        return {name: asdict(count) for name, count in self.by_operation.items()}


@dataclass(frozen=True, slots=True)
class Engine:
    """A running endpoint."""

    url: str

    def counts(self) -> Counts:
        """What was counted since its start."""
        with urlopen(f"{self.url}/counts") as answer:
            return Counts({name: Count(**count) for name, count in json.load(answer).items()})


@contextmanager
def counting(*, read_milliseconds: int = 0) -> Iterator[Engine]:
    """An endpoint with no tables, in a process of its own; it ends with the block. Each read takes that long."""
    command = [sys.executable, "-m", "dynatick_stack.counting", "--read-milliseconds", str(read_milliseconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError("the counting endpoint did not start; see above")
            yield Engine(url)
        finally:
            process.kill()
