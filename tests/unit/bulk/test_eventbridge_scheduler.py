"""Schedules of EventBridge Scheduler, as its commands print them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count, islice, takewhile
from typing import Any

import pytest
from tests.unit import brute_force
from tests.unit.bulk.support import row_of

from dynatick.bulk.conversion import Conversion
from dynatick.bulk.eventbridge_scheduler import read_eventbridge_scheduler
from dynatick.domain.expressions import At, Cron, Rate, upcoming
from dynatick.domain.expressions.occurrence import zone_of
from dynatick.domain.schedule import Schedule
from dynatick.errors import InvalidInput

NOW = datetime(2026, 11, 23, 6, 4, 30, tzinfo=UTC)
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:report:live"

PRINTED = {
    "Arn": "arn:aws:scheduler:eu-west-1:123456789012:schedule/sales/nightly-report",
    "CreationDate": "2025-02-03T14:03:21.511000+01:00",
    "Description": "The report of the day",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "GroupName": "sales",
    "LastModificationDate": "2025-02-03T14:03:21.511000+01:00",
    "Name": "nightly-report",
    "ScheduleExpression": "cron(30 3 ? * MON-FRI *)",
    "ScheduleExpressionTimezone": "Europe/Berlin",
    "StartDate": "2025-03-01T00:00:00+01:00",
    "State": "ENABLED",
    "ActionAfterCompletion": "NONE",
    "Target": {
        "Arn": FUNCTION,
        "DeadLetterConfig": {"Arn": "arn:aws:sqs:eu-west-1:123456789012:failed"},
        "Input": '{"kind": "sales", "net": 1.50}',
        "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 4},
        "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
    },
}
INPUT = {"kind": "sales", "net": pytest.approx(1.5)}


def converted(*documents: object) -> list[Conversion]:
    return list(read_eventbridge_scheduler("\n".join(json.dumps(one, indent=4) for one in documents)))


def one_of(target: Mapping[str, object] | None = None, **changes: object) -> Conversion:
    """The conversion of the schedule above, with changes; None leaves a part out."""
    whole: dict[str, Any] = PRINTED | changes | {"Target": PRINTED["Target"] | (target or {})}  # type: ignore[operator]
    whole["Target"] = {name: value for name, value in whole["Target"].items() if value is not None}
    (found,) = converted({name: value for name, value in whole.items() if value is not None})
    return found


def runs_as_before(one: Conversion) -> int:
    """How many runs are those that EventBridge Scheduler's expression means, without our evaluation of it."""
    row = row_of(one)
    schedule = Schedule.from_row(row)
    end = min(schedule.end or datetime.max.replace(tzinfo=UTC), NOW + timedelta(days=3660))
    start = schedule.start or NOW
    match schedule.expression:
        case At(text=text):
            local = datetime.fromisoformat(text.removeprefix("at(").removesuffix(")"))
            theirs = iter([local.replace(tzinfo=zone_of(schedule.zone)).astimezone(UTC)])
        case Rate(text=text):
            number, unit = text.removeprefix("rate(").removesuffix(")").split()
            seconds = int(number) * {"m": 60, "h": 3600, "d": 86_400}[unit[0]]
            passed = (NOW - start) // timedelta(seconds=seconds)
            theirs = (start + timedelta(seconds=n * seconds) for n in count(max(0, passed)))
        case Cron(text=text):
            theirs = brute_force.runs(text, max(NOW, start - timedelta(seconds=1)), zone_of(schedule.zone))
    expected = list(islice(takewhile(lambda instant: instant <= end, (at for at in theirs if at > NOW)), 1_000))
    ours = upcoming(schedule.expression, NOW, zone=schedule.zone, start=start, end=end)
    assert [run.instant for run in islice(ours, 1_000)] == expected
    return len(expected)


def test_all_that_get_schedule_prints() -> None:
    found = one_of()
    assert found.name == "sales/nightly-report"
    assert found.row == {
        "taskId": "sales/nightly-report",
        "scheduleExpression": "cron(30 3 ? * MON-FRI *)",
        "scheduleExpressionTimezone": "Europe/Berlin",
        "startDate": "2025-02-28T23:00:00Z",
        "overlap": "allow",
        "action": "lambda",
        "payload": {"functionArn": FUNCTION, "input": INPUT},
        "retryPolicy": {"maximumRetryAttempts": 4, "maximumEventAgeInSeconds": 3600},
        "description": "The report of the day",
    }
    left_out = [note.partition(" is left out")[0] for note in found.notes]
    assert left_out == ["RoleArn", "DeadLetterConfig"]
    assert found.notes[0].endswith("which AllowedTargetArns must name")
    assert runs_as_before(found) == 1_000


def test_one_document_or_many() -> None:
    second = {**PRINTED, "Name": "b", "GroupName": "default"}
    names = ["sales/nightly-report", "b"]
    assert [one.name for one in converted(PRINTED, second)] == names, "one after the other"
    assert [one.name for one in converted([PRINTED, second])] == names
    assert [one.name for one in converted({"Schedules": [PRINTED, second]})] == names
    lines = f"{json.dumps(PRINTED)}\n\n{json.dumps(second)}\n"
    assert [(one.name, one.line) for one in read_eventbridge_scheduler(lines)] == [(names[0], 1), ("b", 3)]
    numbered = [one.name for one in converted([{}, PRINTED, 7])]
    assert numbered == ["line 1, element 1", names[0], "line 1, element 3"]
    assert list(read_eventbridge_scheduler("")) == converted({"Schedules": []}) == []
    (prefixed,) = read_eventbridge_scheduler(json.dumps(second), id_prefix="eb-")
    assert row_of(prefixed)["taskId"] == "eb-b"


def test_what_list_schedules_prints_is_not_enough() -> None:
    listed = {name: PRINTED[name] for name in ("Arn", "GroupName", "Name", "State")} | {"Target": {"Arn": FUNCTION}}
    (found,) = converted({"Schedules": [listed]})
    assert found.name == "sales/nightly-report" and found.error is not None
    assert "aws scheduler get-schedule --name nightly-report --group-name sales" in found.error.expected


@pytest.mark.parametrize("text", ["{", "aws: error", '{"Name": "a", "Name": "b"}', "[" * 200 + "]" * 200])
def test_a_file_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected the JSON that aws scheduler get-schedule prints"):
        list(read_eventbridge_scheduler(text))


QUEUE = "arn:aws:sqs:eu-west-1:123456789012:a.fifo"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:topic"
MACHINE = "arn:aws-cn:states:cn-north-1:123456789012:stateMachine:m"
BUS = "arn:aws:events:eu-west-1:123456789012:event-bus/default"


@pytest.mark.parametrize(
    ("target", "action", "payload"),
    [
        ({"Arn": QUEUE, "SqsParameters": {"MessageGroupId": "g"}, "Input": "hi"},
         "sqs", {"queueArn": QUEUE, "message": "hi", "messageGroupId": "g"}),
        ({"Arn": TOPIC, "Input": '{"a": 1}'}, "sns", {"topicArn": TOPIC, "message": '{"a": 1}'}),
        ({"Arn": MACHINE}, "stepfunctions", {"stateMachineArn": MACHINE, "input": INPUT}),
        ({"Arn": BUS, "EventBridgeParameters": {"Source": "shop", "DetailType": "Trial Ended"}, "Input": "{}"},
         "eventbridge", {"eventBusArn": BUS, "source": "shop", "detailType": "Trial Ended", "detail": {}}),
    ],
    ids=["sqs", "sns", "stepfunctions", "eventbridge"],
)  # fmt: skip
def test_a_target_is_an_action_with_a_payload(target: dict[str, Any], action: str, payload: dict[str, Any]) -> None:
    row = row_of(one_of(target))
    assert (row["action"], row["payload"]) == (action, payload)


@pytest.mark.parametrize(
    ("target", "field", "expected"),
    [
        ({"Arn": "arn:aws:scheduler:::aws-sdk:ec2:stopInstances"}, "Target.Arn", "no action calls an API by its name"),
        ({"Arn": "arn:aws:ecs:eu-west-1:123456789012:cluster/c"}, "Target.Arn", "write a handler that does"),
        ({"Arn": "arn:aws:states:eu-west-1:123456789012:activity:a"}, "Target.Arn", "write a handler that does"),
        ({"Arn": "report"}, "Target.Arn", "the ARN of a target"),
        ({"Arn": None}, "Target.Arn", "the ARN of a target"),
        ({"Input": '{"at": "<aws.scheduler.scheduled-time>"}'}, "Target.Input", "nothing takes its place here"),
        ({"Input": "[1]"}, "Target.Input", "a JSON object"),
        ({"Input": "{"}, "Target.Input", "expected JSON"),
        ({"Arn": QUEUE, "Input": None}, "Target.Input", "expected an input"),
        ({"RetryPolicy": 3}, "RetryPolicy", "expected an object"),
    ],
)
def test_a_target_that_no_action_has_is_refused(target: Mapping[str, object], field: str, expected: str) -> None:
    error = one_of(target).error
    assert error is not None
    assert error.field == field and expected in error.expected


def test_what_is_not_understood_is_refused_by_its_name() -> None:
    wrong = {
        "ScheduleExpression": "rate(30 seconds)", "ScheduleExpressionTimezone": "Mars/Base", "StartDate": "soon",
        "State": "PAUSED", "Name": None, "GroupName": 7,
    }  # fmt: skip
    refused = {name: one_of(**{name: value}) for name, value in wrong.items()}
    for mode, part in (("FLEXIBLE", "MaximumWindowInMinutes"), ("WIDE", "Mode")):
        refused[f"FlexibleTimeWindow.{part}"] = one_of(FlexibleTimeWindow={"Mode": mode})
    for name, one in refused.items():
        assert one.row is None and one.error is not None and one.error.field == name


def test_without_an_input_and_a_retry_policy_it_gets_an_empty_one_and_the_defaults_of_eventbridge_scheduler() -> None:
    found = one_of({"Input": None, "RetryPolicy": None})
    assert row_of(found)["payload"] == {"functionArn": FUNCTION, "input": {}}
    assert row_of(found)["retryPolicy"] == {"maximumRetryAttempts": 185, "maximumEventAgeInSeconds": 86_400}
    assert "it has no Input: the target gets no 'Scheduled Event' any more, but an empty one" in found.notes


def test_state_window_and_end() -> None:
    window = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15}
    found = one_of(
        State="DISABLED", FlexibleTimeWindow=window, EndDate=1830297600.0, Tags=[], KmsKeyArn="arn:aws:kms:x"
    )
    row = row_of(found)
    assert (row["scheduleState"], row["flexibleTimeWindow"], row["endDate"]) == ("DISABLED", 15, "2028-01-01T00:00:00Z")
    assert {
        "within its FlexibleTimeWindow it starts later by always the same time",
        "ActionAfterCompletion NONE: it is removed RetentionDays after its last run",
        "Tags is left out",
        "KmsKeyArn is left out: the table's key encrypts the payload",
    } <= set(found.notes)
    assert runs_as_before(found) == 289
    deleted = one_of(ActionAfterCompletion="DELETE")
    assert "ActionAfterCompletion DELETE: after its last run it stays as COMPLETED for RetentionDays" in deleted.notes


def test_a_rate_counts_from_its_start_or_its_creation() -> None:
    rate = {"ScheduleExpression": "rate(7 minutes)"}
    assert row_of(one_of(**rate))["startDate"] == "2025-02-28T23:00:00Z"
    created, neither = one_of(**rate, StartDate=None), one_of(**rate, StartDate=None, CreationDate=None)
    assert row_of(created)["startDate"] == "2025-02-03T13:03:21Z"
    assert created.notes[0].endswith("its rate counts from its CreationDate; compare that with its last runs")
    assert "startDate" not in row_of(neither)
    assert neither.notes[0].startswith("it has no StartDate: its rate counts from the import")
    assert runs_as_before(created) == runs_as_before(neither) == 1_000


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("at(2027-03-01T09:00:00)", 1),
        ("rate(12 hours)", 1_000),
        ("rate(400 days)", 9),
        ("cron(0/10 * * * ? *)", 1_000),
        ("cron(30 2 LW * ? *)", 121),
    ],
)
def test_the_next_thousand_runs_or_those_of_ten_years_are_as_before(expression: str, number: int) -> None:
    assert runs_as_before(one_of(ScheduleExpression=expression)) == number
