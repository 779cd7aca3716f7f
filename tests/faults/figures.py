"""The figures of a fault: how many tasks were inserted and how each ended, from its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tests.sandbox.verdict import Verdict

OTHERWISE = {"failed": "failed", "cancelled": "cancelled", "deleted": "deleted by hand", "replaced": "replaced"}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Numbers of tasks. Of those that were inserted, each was executed, ended otherwise, waits, or is lost."""

    inserted: int
    executed: int
    repeated: int  # executed more than once in one run
    lost: int
    waiting: int
    otherwise: dict[str, int]

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        ended = verdict.record_results
        return cls(
            inserted=sum(verdict.inserted.values()),
            executed=ended["executed"],
            repeated=sum(verdict.repeated.values()),
            lost=ended["lost"],
            waiting=ended["waiting"],
            otherwise={name: ended[what] for what, name in OTHERWISE.items() if ended[what]},
        )
