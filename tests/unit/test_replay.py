"""The replayer accepts what keeps the rules, and says which one an event breaks."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from proof.replay import refusal_of
from tests.trace import plain

ROOT = Path(__file__).parents[2]
CURSOR = {
    "taskId": "_dynatick#cursor#0", "closedThrough": "2026-12-31#23:40", "drainedThrough": "2026-12-31#23:40",
    "checkpoint": "2026-12-31#23:40",
}  # fmt: skip
AT = 1_798_760_400.0  # 2026-12-31T23:40:00Z
BUCKET = "2026-12-31#23:41"
CLAIMED = {"status": "running", "lease": "t", "leaseUntil": "2026-12-31T23:43:00Z", "attempt": {"plus": 1}}
CLOSED = {
    "id": "_dynatick#cursor#0", "if": [["version", "is", 1]], "ok": True,
    "set": {"closedThrough": BUCKET, "version": 2, "lease": "s", "leaseUntil": "2026-12-31T23:41:30Z"},
}  # fmt: skip
DRAINED = {
    "id": "_dynatick#cursor#0", "if": [["version", "is", 2]], "ok": True,
    "set": {"checkpoint": BUCKET, "checkpointAt": "2026-12-31T23:41:01Z", "version": 3},
}  # fmt: skip


def event(what: str, after: float, by: int | None = 1, /, **more: Any) -> dict[str, Any]:
    return {"e": what, "at": AT + after, "by": by, **more}


def life() -> list[dict[str, Any]]:
    """A task is inserted, polled, claimed, executed and recorded; then its bucket is drained."""
    done = {"status": "completed", "outcome": "completed"}
    return [
        {"e": "trace", "lag": 100.0, "skew": 4.0, "attempts": 4, "executions": True, "limits": []},
        event("process", 0, 0, kind="client"),
        event("create", 0, 0, id=CURSOR["taskId"], row={**CURSOR, "version": 1, "lease": None}, ok=True),
        event("create", 1, 0, id="a", ok=True,
              row={"taskId": "a", "status": "scheduled", "taskDateTime": BUCKET, "attempt": 0}),
        event("process", 60, kind="processor", until=AT + 180, order={"dynatick": {"tick": BUCKET}}),
        event("write", 61, **CLOSED),
        event("poll", 62, bucket=BUCKET, after=None, through=None, of="open", entries=[["a", None]]),
        event("write", 63, id="a", ok=True, set=CLAIMED,
              **{"if": [["status", "is", "scheduled"], ["taskDateTime", "is", BUCKET], ["outcome", "absent"]]}),
        event("begin", 64, id="a", token="t", attempt=1, run=1),
        event("end", 65, id="a", token="t", result="ok"),
        event("write", 66, id="a", set=done, ok=True, **{"if": [["lease", "is", "t"], ["status", "is", "running"]]}),
        event("write", 67, **DRAINED),
        event("poll", 162, bucket=BUCKET, after=None, through=None, of="open", entries=[]),
        event("write", 163, id="_dynatick#cursor#0", set={"drainedThrough": BUCKET, "version": 4, "lease": None},
              ok=True, **{"if": [["version", "is", 3]]}),
        event("ended", 164, raised=False, left=0),
        event("rest", 165, None),
    ]  # fmt: skip


def test_it_knows_nothing_of_the_product() -> None:
    tree = ast.parse((ROOT / "proof" / "replay.py").read_text(encoding="utf-8"))
    imported = {one.names[0].name for one in ast.walk(tree) if isinstance(one, ast.Import)}
    imported |= {str(one.module) for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


@pytest.mark.parametrize("bits", [b"\x05", bytearray(b"\x05"), Binary(b"\x05")])
def test_the_bits_of_a_pack_are_in_a_trace_however_they_were_read(bits: object) -> None:
    assert plain("pack", {"done": bits}) == {"done": "05"}
    assert plain("body", bits) == plain("body", b"\x05")


def test_it_accepts_a_task_that_keeps_the_rules() -> None:
    assert refusal_of(life()) is None


@pytest.mark.parametrize("order", [None, 7, "", [], {}, {"dynatick": None}, {"dynatick": {"wakeUp": None}}])
def test_it_takes_whatever_event_begins_a_process(order: object) -> None:
    for given in (order, {"Records": [{"body": json.dumps(order)}]}, {"Records": []}, {"Records": [7]}):
        trace = [*life()[:-1], event("process", 164, 2, kind="processor", until=AT + 300, order=given), life()[-1]]
        assert refusal_of(trace) is None


@pytest.mark.parametrize(
    ("rule", "line", "changes"),
    [
        ("1", 6, {"set": {**CLOSED["set"], "closedThrough": "2026-12-31#23:39"}}),  # type: ignore[dict-item]
        ("16", 6, {"if": []}),
        ("3", 13, {"bucket": "2026-12-31#23:42"}),
        ("3", 13, {"at": AT + 150}),
        ("4", 12, {"set": {**DRAINED["set"], "checkpointAt": "2026-12-31T23:40:50Z"}}),  # type: ignore[dict-item]
        ("9", 8, {"if": [["status", "is", "scheduled"], ["outcome", "absent"]]}),
        ("9", 7, {"entries": []}),
        ("10", 8, {"set": {**CLAIMED, "attempt": 0}}),
        ("11", 8, {"set": {**CLAIMED, "leaseUntil": "2026-12-31T23:44:00Z"}}),
        ("12", 11, {"if": [["status", "is", "running"]]}),
        ("12", 10, {"result": "error"}),
        ("end", 11, {"set": {"status": "completed", "outcome": "complete"}}),
        ("table", 11, {"ok": False}),
        ("table", 4, {"row": {"taskId": "b", "status": "scheduled"}}),
        ("table", 5, {"kind": "process"}),
        ("table", 7, {"by": 2}),
        ("table", 8, {"at": AT + 61.5}),
        ("table", 10, {"by": 0}),
        ("table", 14, {"e": "ended", "raised": False, "left": 0}),
    ],
)
def test_it_refuses_what_breaks_a_rule(rule: str, line: int, changes: dict[str, Any]) -> None:
    trace = life()
    trace[line - 1] = trace[line - 1] | changes
    refused = refusal_of(trace)
    assert refused is not None
    assert refused.rule == rule
    assert refused.line >= line


def test_it_refuses_a_trace_in_which_a_task_is_lost() -> None:
    trace = [one for one in life() if one["e"] not in ("poll", "begin", "end") and one.get("id") != "a"]
    lost = event("create", 1, 0, id="b", ok=True,
                 row={"taskId": "b", "status": "scheduled", "taskDateTime": "2027-01-01#00:00"})  # fmt: skip
    refused = refusal_of([*trace[:3], lost, trace[-1]])
    assert str(refused) == "line 5: end: b: lost: it is scheduled in 2027-01-01#00:00"


def test_its_command_prints_how_many_it_has_accepted_and_why_it_refused_the_others(tmp_path: Path) -> None:
    broken = life()
    broken[6] = broken[6] | {"entries": []}
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in [*life(), *broken]))
    ran = subprocess.run([sys.executable, ROOT / "proof/replay.py", file], capture_output=True, text=True)
    assert ran.stdout.splitlines() == [
        f"{file}, trace 2, line 8: rule 9: a: claimed in {BUCKET}, which this process did not poll",
        "1 accepted, with the histories of 1 tasks; 1 refused; 32 events",
    ]
    assert ran.returncode == 1
