"""Makes a trace for ``proof/replay.py`` of what the emulator has recorded of a deployed stack.

    DYNATICK_LOCAL_RECORDING=recording make up
    python -m tests.deployed_trace recording > trace
    python proof/replay.py trace

A request has the trace id of the invocation that has sent it. One without was sent by a client, or by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.sandbox.trace import CLIENT, HAND, HEADER, NOTED, Requests, order_of, outsider
from tests.trace import Event

ENGINE = ("processor", "scheduler")
COPIED = ("id", "token", "attempt", "run", "result")  # of an execution


def recorded(path: Path) -> list[Mapping[str, Any]]:
    """The lines of a recording, which may still go on."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def trace_of(lines: list[Mapping[str, Any]]) -> Iterator[Event]:
    """The events of a recording that began with an empty table. Raises ValueError if none of the functions ran."""
    settings = next((line["settings"] for line in lines if _kind(line) in ENGINE), None)
    if settings is None:
        raise ValueError("no invocation of the processor or the scheduler was recorded")
    requests = Requests(settings["DYNATICK_TABLE"], settings["DYNATICK_DEAD_LETTER_QUEUE_URL"])
    limits, rates = (
        [one for one in settings[name].split(",") if one]
        for name in ("DYNATICK_KEY_LIMITS", "DYNATICK_ACTION_RATE_LIMITS")
    )
    executions = sorted({line["action"] for line in lines if "execution" in line})
    yield {"e": "trace", **HEADER, "executions": executions, "limits": limits, "rates": rates}
    yield from ({"e": "process", "by": kind, "kind": kind, "at": lines[0]["at"]} for kind in (CLIENT, HAND))
    engine: set[str] = set()
    for line in lines:
        at, by = line["at"], line.get("by")
        if (kind := _kind(line)) in ENGINE:
            engine.add(line["invocation"])
            yield {"e": "process", "at": at, "by": line["invocation"], "in": line["environment"], "kind": kind,
                   "until": line["until"], "skew": 0.0, "order": order_of(kind, line["event"])}  # fmt: skip
        elif line.get("ended") in engine:
            end = {"e": "died"} if line["died"] else {"e": "ended", "raised": False, "left": 0}
            yield {**end, "at": at, "by": line["ended"]}
        elif "execution" in line:
            yield {"e": line["execution"], "at": at, "by": by, **{name: line[name] for name in COPIED if name in line}}
        elif line.get("operation") in NOTED:
            sender = by if by in engine else outsider(json.dumps(line["body"]).encode(), HAND)
            events = requests.events(line["operation"], line["body"], line["status"], line["answer"], at)
            yield from ({"at": at, "by": sender, **event} for event in events)


def _kind(line: Mapping[str, Any]) -> str:
    """Which function is invoked by it, by the last word of its service."""
    return str(line.get("service", "")).rpartition("-")[2]


if __name__ == "__main__":
    for event in trace_of(recorded(Path(sys.argv[1]))):
        sys.stdout.write(json.dumps(event) + "\n")
