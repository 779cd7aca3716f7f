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
from proof.replay import refusal_of, shard_of
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


def test_a_poll_may_be_answered_when_its_invocation_is_over_but_nothing_is_written() -> None:
    """A pass whose time is up does not wait for it."""
    late = event("poll", 164.5, bucket=BUCKET, after=None, through=None, of="open", entries=[])
    assert refusal_of([*life()[:-1], late, life()[-1]]) is None
    write = event("write", 164.5, id="a", ok=True, set={"note": 1}, **{"if": [["status", "is", "completed"]]})
    refused = refusal_of([*life()[:-1], write, life()[-1]])
    assert refused is not None and (refused.rule, refused.line) == ("table", 16)


def test_a_pass_need_not_poll_an_occurrence_that_it_has_made_and_that_waits_for_its_turn() -> None:
    trace = [one for one in life() if one.get("id") != "a" or one["at"] > AT + 60]
    row = {"taskId": "a", "scheduleId": "s", "status": "scheduled", "taskDateTime": BUCKET, "attempt": 0}
    by_client = event("create", 1, 0, id="a", ok=True, row=row)
    by_pass = by_client | {"at": AT + 62, "by": 1}
    unpolled = [one | {"entries": []} if one["e"] == "poll" else one for one in trace]
    refused = refusal_of([*unpolled[:3], by_client, *unpolled[3:]])
    assert refused is not None and refused.rule == "9"
    assert refusal_of([*unpolled[:6], by_pass, *unpolled[6:]]) is None


@pytest.mark.parametrize(
    ("more", "is_left"),
    [
        ({}, False),
        ({"scheduleId": "s"}, False),
        ({"scheduleId": "s", "limitKey": "c:1", "movedTo": BUCKET}, True),
        ({"limitKey": "c:1", "movedTo": BUCKET}, False),
    ],
)
def test_a_scheduler_leaves_in_a_closed_bucket_what_a_pass_goes_on_with(more: dict[str, str], is_left: bool) -> None:
    row = {"taskId": "b", "status": "scheduled", "taskDateTime": BUCKET, "attempt": 0, **more}
    trace = [
        *life()[:6], event("create", 61.5, 1, id="b", row=row, ok=True),
        event("process", 70, 2, kind="scheduler", until=AT + 90, order={"stream": [["b", BUCKET]]}),
        event("ended", 71, 2, raised=False, left=0),
    ]  # fmt: skip
    refused = refusal_of(trace)
    assert refused is None if is_left else refused is not None and refused.rule == "5"


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


def test_the_stream_shows_what_is_inserted() -> None:
    header, *rest = life()
    trace = [{**header, "stream": True}, *rest]
    refused = refusal_of(trace)
    assert str(refused) == "line 5: rule 8: a: changed, and the stream does not show it"
    assert refusal_of([*trace[:4], event("record", 1, None, id="a"), *trace[4:]]) is None
    refused = refusal_of([*trace[:4], event("record", 1, None, id="b"), *trace[4:]])
    assert refused is not None and refused.rule == "table"


@pytest.mark.parametrize(
    ("status", "is_shown"), [("scheduled", True), (None, True), ("running", False), ("waiting", False)]
)
def test_the_stream_shows_what_waits_or_has_no_status(status: str | None, is_shown: bool) -> None:
    header, *rest = life()[:4]
    change = {"set": {"status": status, "p": 2}} if status else {"set": {}, "remove": ["status"]}
    trace = [
        {**header, "stream": True}, *rest, event("record", 1, None, id="a"),
        event("write", 2, 0, id="a", ok=True, **{"if": []}, **change), event("process", 3, 1, kind="client"),
    ]  # fmt: skip
    refused = refusal_of(trace)
    assert (refused is not None and refused.rule == "8") is is_shown


def reconciled(*events: dict[str, Any], **order: Any) -> list[dict[str, Any]]:
    """Of three tasks, b and c lie in a bucket that was drained long ago; a scan reads them."""
    header, client, cursor, *_ = life()
    places = {"a": "2026-12-31#23:50", "b": "2026-12-31#23:39", "c": "2026-12-31#23:40"}
    return [
        header, client, cursor,
        *(event("create", 1, 0, id=name, ok=True,
                row={"taskId": name, "status": "scheduled", "taskDateTime": bucket, "attempt": 0})
          for name, bucket in places.items()),
        event("process", 60, kind="processor", until=AT + 180, order={"dynatick": {"reconcile": True, **order}}),
        *events,
    ]  # fmt: skip


def moved(name: str) -> dict[str, Any]:
    place = {"b": "2026-12-31#23:39", "c": "2026-12-31#23:40"}[name]
    return event("write", 65, id=name, ok=True, set={"taskDateTime": "2026-12-31#23:50"},
                 **{"if": [["taskDateTime", "is", place]]})  # fmt: skip


def page(after: str | None, through: str | None, *ids: str) -> dict[str, Any]:
    return event("scan", 62, after=after, through=through, ids=[*ids])


THROUGH = event("create", 66, id="_dynatick#reconcile#x", ok=True,
                row={"taskId": "_dynatick#reconcile#x", "readThrough": "b"})  # fmt: skip
ENDED = event("ended", 67, raised=False, left=0, unrepaired=0)


@pytest.mark.parametrize(
    ("order", "events", "is_lawful"),
    [
        ({}, [page(None, "b", "a", "b"), page("b", None, "c"), moved("b"), moved("c"), ENDED], True),
        ({}, [page(None, "b", "a", "b"), page("b", None, "c"), moved("b"), ENDED], False),
        ({}, [page(None, None, "a", "b", "c"), moved("b"), {**ENDED, "unrepaired": 1}], True),
        ({}, [page(None, None, "a", "b", "c"), {**ENDED, "raised": True}], True),
        ({}, [page(None, "b", "a", "b"), moved("b"), THROUGH, ENDED], True),
        ({}, [page(None, "c", "a", "b", "c"), moved("b"), THROUGH, ENDED], True),
        ({}, [page(None, "b", "a", "b"), THROUGH, ENDED], False),
        ({}, [page(None, "a", "a"), THROUGH, ENDED], False),
        ({}, [page(None, "a", "a"), page("b", None, "c"), moved("c"), ENDED], False),
        ({}, [page(None, "b", "a", "b"), page(None, "b", "a", "b"), page("b", None), moved("b"), ENDED], True),
        ({}, [ENDED], False),
        ({"beganAt": "x"}, [THROUGH, ENDED], True),
        ({"beganAt": "x", "after": "b"}, [THROUGH, ENDED], False),
        ({"after": "b"}, [page("b", None, "c"), moved("c"), ENDED], True),
        ({"after": "b"}, [page("b", None, "c"), ENDED], False),
        ({"after": "a"}, [page("b", None, "c"), moved("c"), ENDED], False),
    ],
)
def test_a_reconcile_reads_the_whole_table_and_places_what_no_tick_would_poll(
    order: dict[str, Any], events: list[dict[str, Any]], is_lawful: bool
) -> None:
    refused = refusal_of(reconciled(*events, **order))
    assert refused is None if is_lawful else refused is not None and refused.rule == "15"


@pytest.mark.parametrize(
    ("action", "paused", "resumed", "is_lawful"),
    [("mail", 50, None, False), ("mail", 56, None, True), ("mail", 50, 53, True), ("log", 50, None, True)],
)
def test_no_process_that_begins_long_after_the_pause_of_an_action_begins_a_task_of_it(
    action: str, paused: float, resumed: float | None, is_lawful: bool
) -> None:
    header, client, cursor, task, *work = life()
    row = {"taskId": "_dynatick#settings", "status": "settings", "pausedActions": {"mail": {}}}
    resume = event("write", resumed or 0, 0, id=row["taskId"], ok=True, remove=["pausedActions"],
                   **{"set": {}, "if": [["status", "is", "settings"]]})  # fmt: skip
    refused = refusal_of(
        [header, client, cursor, {**task, "row": {**task["row"], "action": action}},
         event("create", paused, 0, id=row["taskId"], ok=True, row=row), *([resume] if resumed else []), *work]
    )  # fmt: skip
    assert refused is None if is_lawful else refused is not None and refused.rule == "pause"


def rated(*begins: float, late: float) -> list[dict[str, Any]]:
    """A process reserves the starts at 64 and 64.5 seconds, and tasks begin at these seconds."""
    record = {"taskId": "_dynatick#rate#send", "reservedUntil": "2026-12-31T23:41:04Z", "version": 1}
    conditions = [["status", "is", "scheduled"], ["taskDateTime", "is", BUCKET], ["outcome", "absent"]]
    names = [f"t{n}" for n in range(len(begins))]
    return [
        {**life()[0], "rates": ["send=2/s"], "late": late},
        *life()[1:3],
        *(event("create", 1, 0, id=name, ok=True, row={"taskId": name, "status": "scheduled", "taskDateTime": BUCKET,
                                                       "attempt": 0, "action": "send"}) for name in names),
        event("process", 59, 2, kind="processor", until=AT + 180, order={}, **{"in": "another"}),
        event("process", 60, kind="processor", until=AT + 180, order={"dynatick": {"tick": BUCKET}}, **{"in": "one"}),
        event("create", 60, 2, id=record["taskId"], ok=True, row=record),
        event("poll", 62, bucket=BUCKET, after=None, through=None, of="open", entries=[[one, None] for one in names]),
        *(event("write", 63, id=one, ok=True, set={**CLAIMED, "lease": one}, **{"if": conditions}) for one in names),
        event("write", 63.5, id=record["taskId"], ok=True, set={"reservedUntil": "2026-12-31T23:41:05Z", "version": 2},
              **{"if": [["version", "is", 1], ["reservedUntil", "is", record["reservedUntil"]]]}),
        *(event("begin", at, id=one, token=one, attempt=1, run=1) for one, at in zip(names, begins, strict=True)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("begins", "late", "is_refused"),
    [
        ((64, 64.5), 0, False),
        ((64.9, 65.4), 0, False),
        ((64, 66), 0, True),
        ((64, 66), 30, False),
        ((64, 64.4), 30, True),
        ((63.9,), 30, True),
        ((64, 64.5, 65), 0, True),
        ((64, 65, 66), 30, True),
    ],
)
def test_a_task_with_a_rate_begins_by_a_start_of_its_process(
    begins: tuple[float, ...], late: float, is_refused: bool
) -> None:
    refused = refusal_of(rated(*begins, late=late))
    assert (refused is not None) == is_refused, refused
    assert refused is None or (refused.rule == "rate" and "no start" in refused.why)


def keyed(shards: int, *, begins: bool, until: str = "2026-12-31T23:43:00Z") -> list[dict[str, Any]]:
    """A process that knows two shards begins the task a in shard 0. Another has the limits of shard 1, begins b there
    if it ``begins`` any, and knows another number of ``shards``."""
    trace = [{**life()[0], "limits": ["c=1", "d=1"]}, *life()[1:3]]
    keys = {0: next(f"c:{n}" for n in range(99) if shard_of(f"c:{n}", 2) == 0),
            1: next(f"d:{n}" for n in range(99) if shard_of(f"d:{n}", shards) == 1)}  # fmt: skip
    for shard, (name, number) in enumerate({"a": 2, "b": shards}.items()):
        bucket = f"{BUCKET}#1" if shard else BUCKET
        record = {"taskId": f"_dynatick#limits#{shard}", "lease": f"l{shard}", "leaseUntil": until, "version": 1}
        row = {"taskId": name, "status": "scheduled", "taskDateTime": bucket, "attempt": 0, "limitKey": keys[shard]}
        conditions = [["status", "is", "scheduled"], ["taskDateTime", "is", bucket], ["outcome", "absent"]]
        trace += [
            event("create", 1, 0, id=name, ok=True, row=row),
            event("process", 60, shard + 1, kind="processor", until=AT + 180, order={"dynatick": {"tick": bucket}}),
            event("create", 61, shard + 1, id=record["taskId"], ok=True, row={**record, "shardCount": number}),
            event("poll", 62, shard + 1, bucket=bucket, after=None, through=None, of="open", entries=[[name, None]]),
            event("write", 63, shard + 1, id=name, ok=True, set={**CLAIMED, "lease": f"t{name}"}, **{"if": conditions}),
            *([event("begin", 64, shard + 1, id=name, token=f"t{name}", attempt=1, run=1)] if name == "a" or begins
              else []),
        ]  # fmt: skip
    return sorted(trace, key=lambda one: one.get("at", 0.0))


def test_a_limit_key_has_one_shard_and_no_two_processes_disagree_about_it() -> None:
    assert refusal_of(keyed(2, begins=True)) is None
    assert refusal_of(keyed(3, begins=False)) is None, "it has given up, for all that is known"
    refused = refusal_of(keyed(3, begins=True))
    assert refused is not None and refused.rule == "24" and "by one of [3] shards" in refused.why
    elsewhere = keyed(2, begins=True)
    place = next(n for n, one in enumerate(elsewhere) if one["e"] == "create" and one["id"] == "_dynatick#limits#0")
    elsewhere[place] = elsewhere[place] | {"row": {**elsewhere[place]["row"], "shardCount": 999}}
    refused = refusal_of(elsewhere)
    assert refused is not None and refused.rule == "24" and "another one of 999" in refused.why


def test_a_task_is_judged_as_it_was_claimed_though_its_row_is_put_anew_before_it_begins() -> None:
    trace = [one | {"ok": False} if one["at"] == AT + 66 else one for one in life()[1:]]
    anew = {"taskId": "a", "limitKey": "c:1", "taskDateTime": BUCKET, "status": "completed", "outcome": "completed"}
    by_hand = [event("process", 63, "hand", kind="hand"), event("put", 63, "hand", id="a", ok=True, row=anew)]
    trace = [life()[0] | {"limits": ["c=1"]}, *trace[:7], *by_hand, *trace[7:]]
    assert refusal_of(trace) is None


@pytest.mark.parametrize("is_released", [True, False])
@pytest.mark.parametrize("conditions", [["status", "lease", "leaseUntil"], ["status", "lease"]])
def test_a_client_cancels_what_was_released_if_nobody_has_claimed_it(is_released: bool, conditions: list[str]) -> None:
    until = "1970-01-01T00:00:00Z" if is_released else "2026-12-31T23:43:00Z"
    released = event("write", 64, id="a", ok=True, set={"attempt": 0, "leaseUntil": until},
                     **{"if": [["lease", "is", "t"], ["status", "is", "running"]]})  # fmt: skip
    is_as_read = [[name, "is", {**CLAIMED, "leaseUntil": until}[name]] for name in conditions]
    cancelled = event("write", 65, 0, id="a", ok=True, set={"status": "cancelled", "outcome": "cancelled"},
                      **{"if": is_as_read})  # fmt: skip
    refused = refusal_of([*life()[:8], released, cancelled, *life()[11:]])
    assert (refused is None) == (is_released and "leaseUntil" in conditions)
    assert refused is None or refused.rule == "13"


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
