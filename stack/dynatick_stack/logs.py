"""The functions' logs, one readable line per record, as they come."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dynatick_stack import deploy

# Lines of Lambda's own, which say nothing about tasks.
PLATFORM = ("START ", "END ", "REPORT ", "INIT_START ", "EXTENSION ")
# Fields of a record that are shown elsewhere in the line, or are the same in each.
QUIET = {
    "timestamp", "level", "action", "message", "service", "location", "exception",
    "exception_name", "stack_trace", "cold_start", "function_name", "function_arn",
    "function_memory_size", "function_request_id", "sampling_rate", "xray_trace_id",
}  # fmt: skip

MOST_EVENTS = 10_000


@dataclass(frozen=True, kw_only=True)
class LogLine:
    at: datetime
    # Short name: scheduler, processor.
    function: str
    # The line as it was written.
    text: str
    # The same, if it is a structured record.
    record: dict[str, Any] | None

    def __str__(self) -> str:
        head = f"{self.at:%H:%M:%S} {self.function:<9}"
        if self.record is None:
            return f"{head} {self.text}"
        record = self.record
        level = "" if record.get("level") == "INFO" else f"{record.get('level', '')} "
        action, message = str(record.get("action", "")), str(record.get("message", ""))
        said = [action] if action.replace("_", " ") == message else [one for one in (action, message) if one]
        # Most counts are zero most of the time.
        fields = [f"{key}={_brief(value)}" for key, value in record.items() if value and key not in QUIET]
        line = f"{head} {level}{' '.join([*said, *fields])}"
        trace = record.get("exception")
        return f"{line}\n{trace}" if trace else line


class LogReader:
    """Reads each line once, from a moment on."""

    def __init__(self, endpoint: str, *, since: float = 0.0, function: str | None = None) -> None:
        self._logs = deploy.client("logs", endpoint)
        self._groups = _groups(endpoint)
        if function is not None:
            self._groups = {function: self._groups[function]}
        self._since = int(since * 1000)
        self._seen: set[tuple[str, int, str, int]] = set()

    def read(self) -> list[LogLine]:
        """What was written since the last call, in order of time."""
        found: list[tuple[int, LogLine]] = []
        same: Counter[tuple[str, int, str]] = Counter()
        for function, group in self._groups.items():
            for event in self._events(group):
                # The emulator gives events no id. Equal ones count up.
                place = (event["logStreamName"], event["timestamp"], event["message"])
                same[place] += 1
                key = (*place, same[place])
                if key in self._seen:
                    continue
                self._seen.add(key)
                text = event["message"].rstrip("\n")
                if line := _line(event["timestamp"], function, text):
                    found.append((event["timestamp"], line))
        if self._seen:
            # Lines may come a little late and out of order, so look back some seconds.
            self._since = max(self._since, max(key[1] for key in self._seen) - 10_000)
            self._seen = {key for key in self._seen if key[1] >= self._since}
        return [line for _, line in sorted(found, key=lambda pair: pair[0])]

    def _events(self, group: str) -> Iterator[dict[str, Any]]:
        """All events of a group from ``since`` on. The emulator tells the first so many, and of no further page."""
        start = self._since
        while True:
            pages = self._logs.get_paginator("filter_log_events").paginate(logGroupName=group, startTime=start)
            events = [event for page in pages for event in page["events"]]
            if len(events) < MOST_EVENTS:
                yield from events
                return
            last = events[-1]["timestamp"]
            # The last instant is asked for again, for it may have more; unless there is nothing else in the answer.
            whole = last == start
            yield from (event for event in events if whole or event["timestamp"] < last)
            start = last + whole

    def follow(self, *, every: float = 1.0) -> Iterator[LogLine]:
        while True:
            yield from self.read()
            time.sleep(every)


def functions(endpoint: str) -> list[str]:
    """Short names of the functions that write logs."""
    return sorted(_groups(endpoint))


def _groups(endpoint: str) -> dict[str, str]:
    """The log groups of the stack, by short name: SchedulerLogGroup is the scheduler's."""
    resources = deploy.client("cloudformation", endpoint).describe_stack_resources(StackName=deploy.STACK)[
        "StackResources"
    ]
    return {
        one["LogicalResourceId"].removesuffix("LogGroup").lower(): one["PhysicalResourceId"]
        for one in resources
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
    return LogLine(at=at, function=function, text=text, record=record)


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return value if value and " " not in value else json.dumps(value)
    return json.dumps(value, separators=(",", ":"))
