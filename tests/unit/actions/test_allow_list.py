"""What a wildcard in an allow list does not reach: the installation's own functions and queues."""

from __future__ import annotations

import pytest
from tests.unit.actions.support import NOW, a_context, a_task

from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings, AllowedArns
from dynatick.errors import ConfigurationError, PermanentError
from dynatick.settings import Settings

FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function"
QUEUE = "arn:aws:sqs:eu-central-1:123456789012"
ENVIRON = {
    "DYNATICK_TABLE": "tasks",
    "AWS_LAMBDA_FUNCTION_NAME": "s-ProcessorFunction-1",
    "DYNATICK_ALLOWED_TARGET_ARNS": "arn:aws:lambda:*:*:function:*,arn:*:sqs:*:*:*",
    # As the template writes it without an importer.
    "DYNATICK_OWN_TARGETS": "s-ApiFunction-1,s-SchedulerFunction-1,,s-DeadLetterQueue-1",
}
OWN = [
    f"{FUNCTION}:s-ApiFunction-1", f"{FUNCTION}:s-ApiFunction-1:$LATEST", f"{FUNCTION}:s-ApiFunction-1:live",
    f"{FUNCTION}:s-SchedulerFunction-1", f"{FUNCTION}:s-ProcessorFunction-1", f"{FUNCTION}:s-ProcessorFunction-1:1",
    f"{QUEUE}:s-DeadLetterQueue-1", f"{QUEUE}:s-DeadLetterQueue-1".replace("aws", "aws-cn"),
]  # fmt: skip
OTHERS = [
    f"{FUNCTION}:s-ApiFunction-10", f"{FUNCTION}:mine:live", f"{QUEUE}:mail", f"{QUEUE}:s-DeadLetterQueue-1.fifo",
]  # fmt: skip


def settings(**environ: str) -> ActionSettings:
    return Settings.from_env({**ENVIRON, **environ}).action_settings


def test_no_pattern_reaches_the_stacks_own_functions_and_queues() -> None:
    chosen = settings()
    allowed = AllowedArns("AllowedTargetArns", chosen.targets, own=chosen.own_targets)
    assert [arn for arn in OWN if arn in allowed] == []
    assert [arn for arn in OTHERS if arn not in allowed] == []


@pytest.mark.parametrize("arn", OWN[:7])
def test_a_task_for_one_of_them_fails_and_calls_nothing(arn: str) -> None:
    calls: list[str] = []

    def clients(service: str, **options: object) -> object:
        calls.append(service)
        raise AssertionError(service)

    actions = build_actions(handlers_module=None, clock=lambda: NOW, settings=settings(), clients=clients)
    name, payload = ("sqs", {"queueArn": arn, "message": "{}"})
    if ":function:" in arn:
        name, payload = "lambda", {"functionArn": arn, "input": {}}
    task = a_task(payload, action=name)
    with pytest.raises(PermanentError, match=r"^payload\.(functionArn|queueArn): .* is not among Allowed"):
        actions.run(task, a_context(task))
    assert calls == []


@pytest.mark.parametrize(
    ("pattern", "reached", "not_reached"),
    [
        ("arn:aws:sqs:eu-west-?:123456789012:orders", "aws:sqs:eu-west-2:123456789012:orders",
         "aws:sqs:eu-west-10:123456789012:orders"),
        ("arn:aws:ssm:*:12345678901?:parameter/a", "aws:ssm:eu-west-1:123456789019:parameter/a",
         "aws:ssm:eu-west-1:123456789109:parameter/a"),
        ("arn:aws-?n:sqs:*:*:orders", "aws-cn:sqs:cn-north-1:123456789012:orders",
         "aws:sqs:eu-west-1:123456789012:orders"),
        ("arn:aws:sns:*:*:or?ers-*", "aws:sns:eu-west-1:123456789012:orders-1",
         "aws:sns:eu-west-1:123456789012:orers-1"),
    ],
)  # fmt: skip
def test_wildcards_stand_in_every_part_but_the_service(pattern: str, reached: str, not_reached: str) -> None:
    allowed = AllowedArns("AllowedTargetArns", [pattern])
    assert f"arn:{reached}" in allowed
    assert f"arn:{not_reached}" not in allowed


def test_there_are_the_actions_of_the_services_that_the_list_names() -> None:
    def actions(targets: str) -> list[str]:
        chosen = settings(DYNATICK_ALLOWED_TARGET_ARNS=targets)
        return build_actions(handlers_module=None, clock=lambda: NOW, settings=chosen).names()

    assert actions("") == ["log", "webhook"]
    assert actions("arn:aws:events:*:*:event-bus/a") == ["eventbridge", "log", "webhook"]
    assert actions(f"{QUEUE}:a,arn:aws:sns:*:*:b,{QUEUE}:c") == ["log", "sns", "sqs", "webhook"]
    assert actions("arn:aws:states:*:*:stateMachine:a,arn:aws:lambda:*:*:function:b") == [
        "lambda", "log", "stepfunctions", "webhook"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arn", "problem"),
    [
        ("arn:aws:kinesis:*:*:stream/a", "no action reaches 'arn:aws:kinesis:*:*:stream/a'; expected events, lambda, "
         "sns, sqs, states instead of kinesis"),
        ("arn:aws:*:*:*:a", "'arn:aws:*:*:*:a' is not an ARN; "),
        ("orders", "'orders' is not an ARN; "),
    ],
)  # fmt: skip
def test_what_is_no_target_is_refused_by_name(arn: str, problem: str) -> None:
    chosen = settings(DYNATICK_ALLOWED_TARGET_ARNS=f"{QUEUE}:a,{arn}")
    with pytest.raises(ConfigurationError) as caught:
        build_actions(handlers_module=None, clock=lambda: NOW, settings=chosen)
    assert str(caught.value).startswith(f"AllowedTargetArns: {problem}")
