"""What was asked for, added up by operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

_READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})
_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_STATEMENTS = frozenset({"BatchExecuteStatement", "ExecuteStatement"})


@dataclass(slots=True)
class Count:
    """Requests, and what they asked for and cost. Not counted: what does not touch items, as CreateTable."""

    reads: int = 0  # calls that read
    writes: int = 0  # calls that write
    statements: int = 0  # items asked for or written: a batch has several
    read_units: float = 0
    write_units: float = 0
    refused: int = 0  # writes whose condition did not hold, and other refusals
    bytes_in: int = 0
    bytes_out: int = 0

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

    def __add__(self, other: Counts) -> Counts:
        names = [*self.by_operation, *(name for name in other.by_operation if name not in self.by_operation)]
        none = Count()
        return Counts({n: self.by_operation.get(n, none) + other.by_operation.get(n, none) for n in names})

    def __sub__(self, earlier: Counts) -> Counts:
        since = {name: count - earlier.by_operation.get(name, Count()) for name, count in self.by_operation.items()}
        return Counts({name: count for name, count in since.items() if count.calls})

    def note(
        self,
        operation: str,
        request: Mapping[str, Any],
        answer: Mapping[str, Any],
        bytes_in: int = 0,
        bytes_out: int = 0,
        more_units: float = 0,
    ) -> None:
        """Adds a request and its answer, which tells the capacity that it consumed; ``more_units`` it does not tell."""
        reading = is_read(operation, request)
        if reading is None:
            return
        units = sum(found["CapacityUnits"] for found in _consumed(answer)) + more_units
        responses = answer.get("Responses")
        answers = responses if isinstance(responses, list) else ()
        count = Count(
            reads=int(reading),
            writes=int(not reading),
            statements=_statements(operation, request),
            read_units=units if reading else 0,
            write_units=0 if reading else units,
            refused=int("__type" in answer) + sum("Error" in one for one in answers),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
        )
        self.by_operation[operation] = self.by_operation.get(operation, Count()) + count

    def to_json(self) -> dict[str, Any]:
        return {name: asdict(count) for name, count in self.by_operation.items()}

    @classmethod
    def from_json(cls, found: Mapping[str, Mapping[str, Any]]) -> Counts:
        return cls({name: Count(**count) for name, count in found.items()})


def is_read(operation: str, request: Mapping[str, Any]) -> bool | None:
    """Whether a request reads items; None if it has nothing to do with them."""
    if operation in _STATEMENTS:
        first: str = (request["Statements"][0] if "Statements" in request else request)["Statement"]
        return first.lstrip()[:6].upper() == "SELECT"
    return True if operation in _READS else False if operation in _WRITES else None


def _statements(operation: str, request: Mapping[str, Any]) -> int:
    match operation:
        case "BatchExecuteStatement":
            return len(request["Statements"])
        case "BatchGetItem":
            return sum(len(wanted["Keys"]) for wanted in request["RequestItems"].values())
    return 1


def _consumed(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    consumed = answer.get("ConsumedCapacity")
    if isinstance(consumed, Mapping):
        yield consumed
    elif consumed is not None:
        yield from consumed
