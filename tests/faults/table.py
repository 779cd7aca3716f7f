"""Prints the table of faults after their tests, and fails unless each of them was survived: a plug-in of pytest, which
``make faults`` names. ``--write-table`` writes the table to docs/guarantees.md, too."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.verdict import Verdict

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"
MARKER = "<!-- faults -->"

FAULTS = {
    1: "A task is inserted while its bucket is being polled",
    2: "A tick is missed, or its clock is read late",
    3: "No tick for 5, 10, 20, 1,440 minutes while tasks arrive",
    4: "More tasks in a bucket than a query page holds",
    5: "Only part of a batch is accepted",
    6: "The process dies between claiming and executing",
    7: "It dies between executing and recording",
    8: "A poison task: always fails, or kills the process",
    9: "Malformed rows in a batch of the stream",
    10: "Cancel or reschedule races with execution",
    11: "A write to two systems fails half-way",
    12: "Times: naive, past, off the tick, that do not exist",
    13: "Two tasks with the same id, or with nearly the same",
    14: "The target answers 4xx or 5xx, late, or hangs up; a secret's service is silent",
    15: "The same tick fires twice, or ticks overlap",
    16: "The stream repeats, reorders, fails half-way",
    17: "Interval and shards are changed with tasks waiting",
    18: "A task is deleted by hand while it waits or runs",
    19: "DynamoDB throttles, fails or is silent in the middle of a batch",
    20: "Time runs out before the bucket is drained",
    21: "The index lags behind the table",
    22: "Hostile payloads, webhooks inward, unknown actions",
    23: "A pass raises while a task still runs, and the process is kept",
    24: "Ticks stop for 60 days, then come back",
    25: "A task can't be finished: the dead-letter queue refuses for days",
    26: "A task is replaced, deleted, inserted again while it runs",
    27: "A large backlog with expired leases and killers in it",
    28: "Wake-ups are lost, doubled, late, early, malformed, or their queue is down",
    29: "A task is changed after its wake-up was sent",
    30: "A worker never starts, dies, starts late or twice, or the shard's holder dies",
    31: "The table is restored to a point in time",
    32: "Rows of 390 KB, a claim full of them",
    33: "The process dies while a pack of a batch runs, or a member kills it",
    34: "Loading a batch is cut off and repeated, or a payload far in is malformed",
    35: "A member of a batch is changed while its pack is claimed, released, extracted",
    36: "The payloads of a pack are missing",
    37: "Hundreds of tasks of one limit key; the limits lease's holder dies, freezes, loses the shard or an answer",
    38: "Shards are changed with tasks of limit keys waiting and running; raw rows name another shard",
    39: "A task is replaced or postponed while it is claimed, cancelled or postponed; an answer is lost",
    40: "Effects that a handler commits: their transaction is cancelled, throttled, lost, or its process dies",
    41: "A completion comes twice, late, forged, after a cancel, or never; heartbeats stop; its answer is lost",
    42: "A declared schedule is removed while its occurrence runs, or a second owner declares its id",
    43: "The answer of a write is lost, or the SDK sends it again: each kind of write in turn",
}

NOTES = (
    "More than once: the process of each execution but the last died, or was cut off from the table, before it could",
    "record it; all have the same idempotency key. Ended otherwise: as the test wants it; what failed has a reason in",
    "its row and a message in the dead-letter queue.",
)

_NUMBERS = ("inserted", "executed", "repeated", "lost", "waiting")
_OTHERWISE = {"failed": "failed", "cancelled": "cancelled", "deleted": "deleted by hand", "replaced": "replaced"}
_HEADINGS = ("#", "Fault", "Inserted", "Executed", "More than once", "Lost", "Waiting", "Verdict")


def figures(verdict: Verdict) -> dict[str, int]:
    """Numbers of tasks. Of those that were inserted, each was executed, ended otherwise, waits, or is lost."""
    inserted, repeated = sum(verdict.inserted.values()), sum(verdict.repeated.values())
    return {"inserted": inserted, "repeated": repeated, **verdict.results}


@dataclass
class Row:
    """The result of one fault's tests."""

    tests: int = 0
    passed: int = 0
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def survived(self) -> bool:
        return self.tests > 0 and self.passed == self.tests and not self.figures["lost"]

    @property
    def verdict(self) -> str:
        if not self.tests:
            return "no test"
        if not self.survived:
            return f"FAILED: {self.tests - self.passed} of {self.tests} tests"
        counted = sorted((text, self.figures[name]) for name, text in _OTHERWISE.items() if self.figures[name])
        rest = ", ".join(f"{number:,} {text}" for text, number in counted)
        return f"ok; ended otherwise: {rest}" if rest else "ok"


class Table:
    """Collects the figures from the tests' reports."""

    def __init__(self) -> None:
        self.rows = {number: Row() for number in FAULTS}
        self.traces: Counter[str] = Counter()

    @property
    def survived(self) -> int:
        return sum(row.survived for row in self.rows.values())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for name, value in report.user_properties:
                self.traces.update(value if name == "trace" else {})
        if "::test_fault_" not in report.nodeid or (report.when != "call" and report.passed):
            return
        row = self.rows[int(report.nodeid.partition("::test_fault_")[2][:2])]
        reported: list[Any] = [value for name, value in report.user_properties if name == "fault"]
        row.tests += 1
        row.passed += report.passed and bool(reported)
        for one in reported:
            row.figures.update(one)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.survived < len(FAULTS):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        terminalreporter.section("What was injected, and how its tasks ended")
        table = as_markdown(self.rows)
        terminalreporter.write_line(table)
        terminalreporter.write_line(f"{self.survived} of {len(FAULTS)} faults survived")
        traces = "{traces:,} traces accepted by the rules alone: {events:,} events, {checks:,} checks"
        terminalreporter.write_line(traces.format_map(self.traces))
        if config.getoption("--write-table") and self.survived == len(FAULTS):
            before, _, after = DOCUMENT.read_text().split(MARKER)
            DOCUMENT.write_text(f"{before}{MARKER}\n{table}\n{MARKER}{after}")
            terminalreporter.write_line(f"Written to {DOCUMENT.relative_to(Path.cwd())}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-table", action="store_true", help="write the table of faults to docs/guarantees.md")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # processes of pytest-xdist hand their reports to this one
        config.pluginmanager.register(Table())


def as_markdown(rows: dict[int, Row]) -> str:
    cells = [
        (str(number), FAULTS[number], *(f"{row.figures[name]:,}" for name in _NUMBERS), row.verdict)
        for number, row in sorted(rows.items())
    ]
    lines = [_HEADINGS, ("---:", "---", *["---:"] * len(_NUMBERS), "---"), *cells]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *NOTES])
