"""The functions' logs, one readable line per record, as they come."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from dynatick.cli.output import printable_lines
from dynatick.domain.instants import format_instant
from dynatick_stack import deploy
from dynatick_stack.emulator import STACK

# Lines of Lambda's own, which say nothing about tasks.
PLATFORM = ("START ", "END ", "REPORT ", "INIT_START ", "EXTENSION ")
# Fields of a record that are shown elsewhere in the line, or are the same in each.
_TIMESTAMP = "%Y-%m-%d %H:%M:%S,%f%z"  # as Powertools writes it
QUIET = {
    "timestamp", "level", "action", "message", "service", "location", "exception",
    "exception_name", "stack_trace", "cold_start", "function_name", "function_arn",
    "function_memory_size", "function_request_id", "sampling_rate", "xray_trace_id",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LogLine:
    at: datetime
    # Short name: scheduler, processor, api.
    function: str
    # The line as it was written.
    text: str
    # The same, if it is a structured record.
    record: dict[str, Any] | None

    def to_row(self) -> dict[str, Any]:
        """Returns the record with its function and instant, or the text, for programs."""
        said = {"text": self.text} if self.record is None else self.record
        return {**said, "function": self.function, "at": format_instant(self.at)}

    def __str__(self) -> str:
        return printable_lines(f"{self.at:%H:%M:%S} {self.function:<9} {self.said()}")

    def said(self) -> str:
        """The line for people: without the names of most fields, and without those that say nothing."""
        if self.record is None:
            return self.text
        record = self.record
        level = "" if record.get("level") == "INFO" else f"{record.get('level', '')} "
        action, message = str(record.get("action", "")), str(record.get("message", ""))
        same = message in (action, action.replace("_", " "))
        said = [action] if same else [one for one in (action, message) if one]
        # Most counts are zero most of the time.
        fields = [f"{key}={_brief(value)}" for key, value in record.items() if value and key not in QUIET]
        line = f"{level}{' '.join([*said, *fields])}"
        trace = record.get("exception")
        return f"{line}\n{trace}" if trace else line


class LogReader:
    """Reads each line once, from a moment on."""

    def __init__(self, endpoint: str, *, since: float = 0.0, function: str | None = None, stack: str = STACK) -> None:
        self._logs = deploy.client("logs", endpoint)
        self._groups = _groups(endpoint, stack)
        if function is not None:
            self._groups = {function: self._groups[function]}
        self._since = int(since * 1000)
        # How far each stream of a group was read.
        self._tokens: dict[tuple[str, str], str] = {}

    def read(self) -> list[LogLine]:
        """What was written since the last call, in order of time."""
        found: list[LogLine] = []
        for function, group in self._groups.items():
            for page in self._new_pages(group):
                lines = [_line(event["timestamp"], function, event["message"].rstrip("\n")) for event in page]
                found += _in_order([line for line in lines if line is not None])
        return sorted(found, key=attrgetter("at"))

    def _new_pages(self, group: str) -> Iterator[list[dict[str, Any]]]:
        # Stream by stream: over all of them, the emulator tells the first ten thousand and has no next page.
        pages = self._logs.get_paginator("describe_log_streams").paginate(logGroupName=group)
        for stream in [stream["logStreamName"] for page in pages for stream in page["logStreams"]]:
            while True:
                token = self._tokens.get((group, stream))
                page = self._logs.get_log_events(
                    logGroupName=group,
                    logStreamName=stream,
                    startTime=self._since,
                    startFromHead=True,
                    **({} if token is None else {"nextToken": token}),
                )
                yield page["events"]
                self._tokens[group, stream] = page["nextForwardToken"]
                if not page["events"]:
                    break

    def follow(self, *, every: float = 1.0) -> Iterator[LogLine]:
        while True:
            yield from self.read()
            time.sleep(every)


def functions(endpoint: str, stack: str = STACK) -> list[str]:
    """Short names of the functions that write logs."""
    return sorted(_groups(endpoint, stack))


def _groups(endpoint: str, stack: str) -> dict[str, str]:
    """The log groups of the stack, by short name: SchedulerLogGroup is the scheduler's."""
    return {
        one["LogicalResourceId"].removesuffix("LogGroup").lower(): one["PhysicalResourceId"]
        for one in deploy.stack_at(endpoint, stack).resources()
        if one["ResourceType"] == "AWS::Logs::LogGroup"
    }


def _line(timestamp: int, function: str, text: str) -> LogLine | None:
    if text.startswith(PLATFORM) or not text.strip():
        return None
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        record = None
    elif "_aws" in record:
        return None  # A metric, written as a log line.
    at = datetime.fromtimestamp(timestamp / 1000, UTC)
    return LogLine(at=_said_at(record) or at, function=function, text=text, record=record)


def _in_order(lines: list[LogLine]) -> list[LogLine]:
    """Lines of one stream, none of them later than the one after it: what is printed has no time of its own."""
    for n in range(len(lines) - 2, -1, -1):
        lines[n] = replace(lines[n], at=min(lines[n].at, lines[n + 1].at))
    return lines


def _said_at(record: Mapping[str, Any] | None) -> datetime | None:
    """When a record was written: its line is stored later, at the end of an invocation if there is much to do."""
    try:
        return datetime.strptime(str((record or {}).get("timestamp")), _TIMESTAMP).astimezone(UTC)
    except ValueError:  # a record of one's own
        return None


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return value if value and " " not in value and value.isprintable() else json.dumps(value)
    return json.dumps(value, separators=(",", ":"))
