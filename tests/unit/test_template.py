"""Rules for template.yaml that no linter checks."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.sandbox.stream import matches, patterns
from tests.unit.reference_page import described

from dynatick.api.document import document
from dynatick.bulk import importer
from dynatick.client.connect import TIMEOUT_SECONDS, ClientSettings
from dynatick.domain.buckets import Grid
from dynatick.domain.ends import OutcomeEvents
from dynatick.domain.expressions.occurrence import upcoming
from dynatick.domain.expressions.parse import parse_expression
from dynatick.engine.counts import COUNTERS
from dynatick.engine.invocation import max_timeout_seconds
from dynatick.engine.orders import ReconcileOrder, parse_event
from dynatick.engine.rules import MAX_TICK_MINUTES, Rules
from dynatick.settings import Settings
from dynatick.wiring import build_rules
from dynatick_stack import template
from dynatick_stack.errors import RefusedError

TEMPLATE = template.load()
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
TICKS: list[int] = TEMPLATE["Parameters"]["TickMinutes"]["AllowedValues"]


def properties(name: str) -> dict[str, Any]:
    found: dict[str, Any] = RESOURCES[name]["Properties"]
    return found


def of_type(kind: str) -> list[str]:
    return [name for name, resource in RESOURCES.items() if resource["Type"] == kind]


# --- Parameters and outputs ---------------------------------------------------


def test_every_parameter_is_described_grouped_and_used_and_has_a_default() -> None:
    groups = TEMPLATE["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(TEMPLATE["Parameters"])
    rest = json.dumps({key: value for key, value in TEMPLATE.items() if key not in ("Parameters", "Metadata")})
    for name, parameter in TEMPLATE["Parameters"].items():
        assert len(parameter["Description"]) > 20, name
        assert "Default" in parameter, name
        assert f'"Ref": "{name}"' in rest, name


def test_the_readme_counts_what_a_stack_has_by_default() -> None:
    def by_default(kind: str) -> list[str]:
        return [name for name in of_type(kind) if "Condition" not in RESOURCES[name]]

    words = {2: "two", 3: "three"}
    readme = " ".join((template.ROOT / "README.md").read_text(encoding="utf-8").split())
    rules, functions = by_default("AWS::Events::Rule"), by_default("AWS::Serverless::Function")
    assert f"{words[len(rules)]} EventBridge rules, {words[len(functions)]} Lambda functions" in readme


# --- Ticks --------------------------------------------------------------------


def minutes_of_day(cron: str) -> set[int]:
    """The minutes of a day at which a rule of the template fires."""
    minute, day = timedelta(minutes=1), NOON.replace(hour=0)
    found = upcoming(parse_expression(cron), day - minute, end=day + timedelta(days=1) - minute)
    return {(one.instant - day) // minute for one in found}


def test_each_allowed_tick_is_on_the_clock_and_leaves_time_for_retries() -> None:
    """Lambda waits one minute before it invokes again and then two, and drops events that are too old then."""
    assert list(TEMPLATE["Mappings"]["Tick"]) == [str(tick) for tick in TICKS]
    retries = properties("ProcessorFunction")["EventInvokeConfig"]
    assert retries["MaximumEventAgeInSeconds"] == {"Fn::FindInMap": ["Tick", {"Ref": "TickMinutes"}, "QueueSeconds"]}
    assert retries["MaximumRetryAttempts"] == 2
    retried_after = 60 + 120 + 2 * TEMPLATE["Parameters"]["ProcessorTimeoutSeconds"]["Default"]
    # Usually a bucket is drained two ticks later, plus the index lag and the duration of a lease.
    lag = Rules(grid=Grid()).index_lag.seconds * 3 + 900
    for tick in TICKS:
        row = TEMPLATE["Mappings"]["Tick"][str(tick)]
        assert row["Seconds"] == tick * 60, "an undelivered tick is retried until the next"
        assert minutes_of_day(row["Cron"]) == set(range(0, 24 * 60, tick))
        assert retried_after <= row["QueueSeconds"] <= 6 * 3600
        assert row["StuckSeconds"] == 4 * tick * 60 + 3600 >= 2 * tick * 60 + lag


@pytest.mark.parametrize(
    ("rule", "permission"),
    [("TickRule", "TickMayInvoke"), ("ReconcileRule", "ReconcileMayInvoke"), ("ImportRule", "ImportMayInvoke")],
)
def test_a_rule_is_created_after_its_permission(rule: str, permission: str) -> None:
    """The permission contains the rule's name, which is known before."""
    assert permission in RESOURCES[rule]["DependsOn"]
    assert rule not in json.dumps(RESOURCES[permission])
    name, names = properties(rule)["Name"]["Fn::Sub"]
    arn, same = properties(permission)["SourceArn"]["Fn::Sub"]
    assert arn == f"arn:${{AWS::Partition}}:events:${{AWS::Region}}:${{AWS::AccountId}}:rule/{name}"
    # The last part of a stack's id is a UUID, and a rule's name takes 64 characters.
    assert names == same == {"Id": {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}}
    assert len(name.replace("${Id}", "")) + 36 <= 64


def test_the_reconcile_has_a_time_that_is_in_its_event_and_no_rule_counts_from_its_creation() -> None:
    """EventBridge and Lambda may deliver an event twice: both then name the same chain."""
    (target,) = properties("ReconcileRule")["Targets"]
    assert target["InputTransformer"]["InputPathsMap"] == {"time": "$.time"}
    event = json.loads(target["InputTransformer"]["InputTemplate"].replace("<time>", '"2026-12-31T03:37:00Z"'))
    assert parse_event(event, NOON) == ReconcileOrder(began_at=NOON - timedelta(hours=8, minutes=23))
    assert minutes_of_day(properties("ReconcileRule")["ScheduleExpression"]) == {3 * 60 + 37}
    assert not [name for name in of_type("AWS::Events::Rule") if "rate(" in json.dumps(properties(name))]


# --- Table --------------------------------------------------------------------


def index(name: str) -> dict[str, Any]:
    (found,) = [one for one in properties("TasksTable")["GlobalSecondaryIndexes"] if one["IndexName"] == name]
    return dict(found)


def test_no_index_projects_what_changes_during_a_run() -> None:
    found = index("taskDateTime-index")
    assert [key["AttributeName"] for key in found["KeySchema"]] == ["taskDateTime", "taskId"]
    assert set(found["Projection"]["NonKeyAttributes"]) == {
        "outcome", "finishedAt", "error", "action", "dueAt", "scheduleId", "nextAttemptAt", "lateMilliseconds",
        "limitKey", "packMembers",
    }  # fmt: skip
    changing = {"status", "attempt", "attempts", "lease", "leaseUntil", "run", "startedAt", "result", "payload"}
    assert not changing & set(index("schedules-index")["Projection"]["NonKeyAttributes"])
    of_subjects = index("subject-index")
    assert [key["AttributeName"] for key in of_subjects["KeySchema"]] == ["subject", "taskId"]
    assert of_subjects["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    of_lists = index("lists-index")
    assert [key["AttributeName"] for key in of_lists["KeySchema"]] == ["listedAs", "listedAt"]
    assert of_lists["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def test_the_table_is_kept_and_restorable() -> None:
    table = properties("TasksTable")
    assert RESOURCES["TasksTable"]["DeletionPolicy"] == "RetainExceptOnCreate"
    assert RESOURCES["TasksTable"]["UpdateReplacePolicy"] == "Retain"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    # Without it the key is AWS's own, and costs nothing.
    assert "SSESpecification" not in table
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expiresAt", "Enabled": True}
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}


@pytest.mark.parametrize(
    ("throughput", "condition", "value"),
    [
        ("WarmThroughput", "IsWarmed", {"WriteUnitsPerSecond": {"Ref": "WarmThroughput"}}),
        ("OnDemandThroughput", "HasMaxWriteUnits", {"MaxWriteRequestUnits": {"Ref": "MaxWriteUnits"}}),
    ],
)
def test_table_and_index_of_buckets_get_the_same_throughput(
    throughput: str, condition: str, value: dict[str, Any]
) -> None:
    wanted = {"Fn::If": [condition, value, {"Ref": "AWS::NoValue"}]}
    assert properties("TasksTable")[throughput] == index("taskDateTime-index")[throughput] == wanted
    assert throughput not in index("schedules-index")
    (parameter,) = value.values()
    is_given, is_on_aws = {"Fn::Not": [{"Fn::Equals": [parameter, "0"]}]}, {"Fn::Not": [{"Condition": "IsEmulator"}]}
    assert TEMPLATE["Conditions"][condition] == {"Fn::And": [is_given, is_on_aws]}
    assert TEMPLATE["Parameters"][parameter["Ref"]]["Default"] in (0, "0"), "a new stack costs nothing more"
    assert throughput not in json.dumps(template.table_definition(**{parameter["Ref"]: "40000"}))


def test_warm_throughput_is_none_or_more_than_a_new_table_has_and_a_cap_on_cost_is_a_number() -> None:
    for units in ("0", "4000", "40000", "1000000"):
        template.check_parameters({"WarmThroughput": units, "MaxWriteUnits": "5000"}, TEMPLATE)
    for units in ("3999", "-1", "", "04000", "4,000", "10000000"):
        with pytest.raises(RefusedError, match=r"^WarmThroughput can't be .*\. Write units a second .* 4,000 or more"):
            template.check_parameters({"WarmThroughput": units}, TEMPLATE)
    with pytest.raises(RefusedError, match=r"^MaxWriteUnits can't be none\. Allowed: 0 to 9999999"):
        template.check_parameters({"MaxWriteUnits": "none"}, TEMPLATE)


# --- Stream filter (protocol rule 8) ------------------------------------------


@pytest.mark.parametrize(
    ("event", "task_id", "status", "seen"),
    [
        ("INSERT", "a", None, True), ("INSERT", "a", "scheduled", True), ("INSERT", "a", "no status of ours", True),
        ("INSERT", "_dynatick#cursor#0", "cursor", False), ("INSERT", "_dynatick#reconcile", "reconcile", False),
        ("INSERT", "_dynatick#settings", "settings", False), ("INSERT", "_dynatick#tick#0", "tick", False),
        ("MODIFY", "a", "scheduled", True), ("MODIFY", "a", None, True), ("MODIFY", "a", "running", False),
        ("MODIFY", "a", "completed", False), ("MODIFY", "_dynatick#cursor#0", "cursor", False),
        ("MODIFY", "_dynatick#reconcile", "reconcile", False), ("REMOVE", "a", "scheduled", False),
    ],
)  # fmt: skip
def test_the_stream_filter_passes_rows_that_may_need_a_bucket(
    event: str, task_id: str, status: str | None, seen: bool
) -> None:
    image = {"taskId": {"S": task_id}} | ({"status": {"S": status}} if status else {})
    record = {"eventName": event, "dynamodb": {"Keys": {"taskId": {"S": task_id}}, "NewImage": image}}
    assert any(matches(pattern, record) for pattern in patterns(emulator=False)) == seen


def is_seen(outcome_events: str, **image: dict[str, Any]) -> bool:
    record = {"eventName": "MODIFY", "dynamodb": {"NewImage": {"taskId": {"S": "a"}, **image}}}
    return any(matches(pattern, record) for pattern in patterns(outcome_events=outcome_events))


def test_ends_pass_the_stream_filter_only_if_they_are_to_become_events() -> None:
    """Off by default, and then no invocation more: the filter is the same three patterns."""
    assert TEMPLATE["Parameters"]["OutcomeEvents"]["Default"] == "off"
    off = patterns()
    assert len(off) == 3
    assert off == patterns(outcome_events="failed")[:3] == patterns(outcome_events="all")[:3]
    assert len(patterns(outcome_events="all")) <= 5, "Lambda takes five"
    seen = {
        kind: [
            outcome for outcome in ("completed", "failed", "cancelled", "none")
            if is_seen(kind, status={"S": outcome}, outcome={"S": outcome})
        ]
        for kind in OutcomeEvents
    }  # fmt: skip
    assert seen == {"off": [], "failed": ["failed"], "all": ["completed", "failed", "cancelled"]}
    pack = {"M": {"members": {"N": "3"}, "done": {"B": "Aw=="}}}
    assert [is_seen(kind, status={"S": "running"}, pack=pack) for kind in OutcomeEvents] == [False, False, True]
    assert not is_seen("all", status={"S": "running"}, pack={"M": {"members": {"N": "3"}}}), "a claim"
    values = TEMPLATE["Parameters"]["OutcomeEvents"]["AllowedValues"]
    assert values == [str(kind) for kind in OutcomeEvents]
    conditions = TEMPLATE["Conditions"]
    assert conditions["HasAllOutcomeEvents"] == {"Fn::Equals": [{"Ref": "OutcomeEvents"}, "all"]}
    assert conditions["HasOutcomeEvents"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "OutcomeEvents"}, "off"]}]}


def test_only_an_emulator_with_outcome_events_writes_one_by_one() -> None:
    assert properties("ProcessorFunction")["Environment"]["Variables"]["DYNATICK_BATCHED"] == {
        "Fn::If": ["WritesOneByOne", "0", "1"]
    }
    both = {"Fn::And": [{"Condition": "HasOutcomeEvents"}, {"Condition": "IsEmulator"}]}
    assert TEMPLATE["Conditions"]["WritesOneByOne"] == both


def test_the_scheduler_may_put_events_on_that_bus_alone_and_only_with_outcome_events() -> None:
    policy = RESOURCES["OutcomesReachBus"]
    assert policy["Condition"] == "HasOutcomeEvents"
    assert policy["Properties"]["Roles"] == [{"Ref": "SchedulerRole"}]
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Action"] == "events:PutEvents"
    variables = properties("SchedulerFunction")["Environment"]["Variables"]
    condition, named, default = statement["Resource"]["Fn::If"]
    assert statement["Resource"] == variables["DYNATICK_OUTCOME_EVENTS_BUS"]
    assert (condition, named) == ("HasOutcomeEventsBus", {"Ref": "OutcomeEventsBusArn"})
    assert default["Fn::Sub"].endswith(":event-bus/default")
    pattern = TEMPLATE["Parameters"]["OutcomeEventsBusArn"]["AllowedPattern"]
    bus = "arn:aws:events:eu-west-1:123456789012:event-bus/"
    accepted = [bool(re.fullmatch(pattern, text)) for text in ("", f"{bus}a/b", "default", f"{bus}*", bus)]
    assert accepted == [True, True, False, False, False]


def test_the_filter_knows_every_status_of_our_own_rows() -> None:
    package = template.ROOT / "shared" / "dynatick"
    writers = [*(package / "engine").glob("*.py"), *(package / "client").glob("*.py")]
    written_as = re.compile(r'(?:attr\.STATUS: |own_row\()"(\w+)"')
    written = {status for path in writers for status in written_as.findall(path.read_text())}
    (pattern, *_) = patterns(emulator=False)
    (condition,) = pattern["dynamodb"]["NewImage"]["status"]["S"]
    assert set(condition["anything-but"]) == written


def test_a_stream_batch_is_retried_for_a_limited_time() -> None:
    mapping = properties("SchedulerFunction")["Events"]["TaskWritten"]["Properties"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["MaximumRetryAttempts"] >= 0
    assert mapping["MaximumRecordAgeInSeconds"] <= 6 * 3600
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    # A new table has four stream shards, a new account ten concurrent executions.
    assert mapping["ParallelizationFactor"] == {"Ref": "StreamParallelism"}
    assert TEMPLATE["Parameters"]["StreamParallelism"]["Default"] * 4 < 10
    assert "OnFailure" in mapping["DestinationConfig"]
    # It costs a delay, so nobody gets it unasked; and no alarm of a delay of five minutes rings for it.
    assert mapping["MaximumBatchingWindowInSeconds"] == {"Ref": "StreamBatchSeconds"}
    window = TEMPLATE["Parameters"]["StreamBatchSeconds"]
    assert (window["Default"], window["MinValue"]) == (0, 0)
    assert window["MaxValue"] * 1000 < properties("SchedulerBehindAlarm")["Threshold"]


# --- Functions ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["SchedulerFunction", "ProcessorFunction", "ApiFunction", "ImporterFunction"])
def test_functions_run_on_the_layer_and_log_where_logs_expire(name: str) -> None:
    function = properties(name)
    group = properties(function["LoggingConfig"]["LogGroup"]["Ref"])
    assert group["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    assert TEMPLATE["Globals"]["Function"]["Layers"][0] == {"Ref": "DynatickLayer"}
    assert RESOURCES[name]["Metadata"] == {"SkipBuild": True}
    continues_itself = name in ("ProcessorFunction", "ImporterFunction")  # loop detection would end that
    assert function.get("RecursiveLoop") == (
        {"Fn::If": ["LoopsAreDetected", "Allow", {"Ref": "AWS::NoValue"}]} if continues_itself else None
    )


def test_loops_are_allowed_only_where_lambda_detects_them() -> None:
    """Elsewhere it refuses the property: https://github.com/aws/aws-lambda-roadmap/issues/18, read in November 2026."""
    partition, *regions = TEMPLATE["Conditions"]["LoopsAreDetected"]["Fn::And"]
    assert partition == {"Fn::Equals": [{"Ref": "AWS::Partition"}, "aws"]}
    assert regions == [
        {"Fn::Not": [{"Fn::Equals": [{"Ref": "AWS::Region"}, region]}]} for region in ("mx-central-1", "ap-southeast-6")
    ]


def test_the_processor_knows_how_long_it_may_run_and_the_maximum_timeout_follows_from_that() -> None:
    function = properties("ProcessorFunction")
    assert function["Timeout"] == {"Ref": "ProcessorTimeoutSeconds"}
    assert function["Environment"]["Variables"]["DYNATICK_PROCESSOR_TIMEOUT_SECONDS"] == function["Timeout"]
    for bound in ("MinValue", "MaxValue", "Default"):
        seconds = TEMPLATE["Parameters"]["ProcessorTimeoutSeconds"][bound]
        settings = Settings.from_env({"DYNATICK_TABLE": "tasks", "DYNATICK_PROCESSOR_TIMEOUT_SECONDS": str(seconds)})
        assert build_rules(settings).max_timeout_seconds == max_timeout_seconds(timedelta(seconds=seconds))
    assert build_rules(Settings.from_env({"DYNATICK_TABLE": "tasks"})).max_timeout_seconds is None


def test_a_client_in_a_handler_waits_as_long_as_any_other() -> None:
    variables = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]
    environ = {**variables, **properties("ProcessorFunction")["Environment"]["Variables"]}
    at_most = str(TEMPLATE["Parameters"]["ProcessorTimeoutSeconds"]["MaxValue"])
    set_by_lambda = {
        name: at_most if value == {"Ref": "ProcessorTimeoutSeconds"} else "x" for name, value in environ.items()
    }
    assert ClientSettings.from_env(set_by_lambda, is_library=True).timeout_seconds == TIMEOUT_SECONDS


def test_the_environment_leaves_room_for_lists() -> None:
    """Lambda's limit is 4,096 bytes, names and values; docs/how-to/operate.md says what the template itself takes."""
    variables = {
        **TEMPLATE["Globals"]["Function"]["Environment"]["Variables"],
        **properties("ProcessorFunction")["Environment"]["Variables"],
    }
    # The table's name, the queue's URL; a stack's name; the names of three functions and three queues.
    longest = {"Ref": 64, "Fn::Sub": 128 + len("-processor"), "Fn::Join": 3 * 64 + 3 * 80 + 5, "Fn::If": 1}
    own = ("WEBHOOK_PRIVATE_HOSTS", "ACTION_RATE_LIMITS", "KEY_LIMITS", "HANDLERS_ENVIRONMENT", "HANDLERS_SECRETS")
    lists = {f"DYNATICK_{name}" for name in own}
    size = sum(map(len, variables))
    for name, value in variables.items():
        if not name.startswith("DYNATICK_ALLOWED_") and name not in lists:
            size += len(value) if isinstance(value, str) else max(longest[kind] for kind in value)
    assert size + 200 < 2_500  # 200: the queue's URL and the table's name can be longer


def test_the_processor_is_in_a_vpc_exactly_when_it_has_subnets() -> None:
    condition, settings, none = properties("ProcessorFunction")["VpcConfig"]["Fn::If"]
    assert TEMPLATE["Conditions"][condition] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "HandlersSubnetIds"}, ""]}]}
    assert settings == {
        "SubnetIds": {"Fn::Split": [",", {"Ref": "HandlersSubnetIds"}]},
        "SecurityGroupIds": {"Fn::Split": [",", {"Ref": "HandlersSecurityGroupIds"}]},
    }
    assert none == {"Ref": "AWS::NoValue"}
    (in_vpc,) = [policy["Fn::If"] for policy in properties("ProcessorRole")["Policies"] if "Fn::If" in policy]
    assert (in_vpc[0], in_vpc[2]) == (condition, none)
    # EC2 knows no resource for these, so the function itself is denied them.
    allowed, denied = in_vpc[1]["PolicyDocument"]["Statement"]
    assert (allowed["Effect"], denied["Effect"], allowed["Resource"]) == ("Allow", "Deny", "*")
    source = denied["Condition"]["ArnEquals"]["lambda:SourceFunctionArn"]["Fn::Sub"]
    assert source.endswith(":function:*"), "the name of a function has only the beginning of a long stack's name"
    assert allowed["Action"] == denied["Action"] == [
        f"ec2:{name}"
        for name in (
            "AssignPrivateIpAddresses", "CreateNetworkInterface", "DeleteNetworkInterface",
            "DescribeNetworkInterfaces", "DescribeSubnets", "UnassignPrivateIpAddresses",
        )
    ]  # fmt: skip


# --- Rights (tests/integration/test_least_privilege.py has all others) --------


@pytest.mark.parametrize(
    ("policy", "parameter"),
    [
        ("TasksReachTargets", "AllowedTargetArns"),
        ("TasksReadSecrets", "AllowedSecrets"),
        ("HandlersReadSecrets", "HandlersSecretArns"),
        ("TasksUseKeys", "AllowedKeyArns"),
    ],
)
def test_a_parameter_of_arns_gives_rights_to_those_only(policy: str, parameter: str) -> None:
    assert TEMPLATE["Parameters"][parameter]["Default"] == ""
    condition = TEMPLATE["Conditions"][RESOURCES[policy]["Condition"]]
    assert condition == {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, ""]}]}
    statement, *denied = properties(policy)["PolicyDocument"]["Statement"]
    assert [one["Effect"] for one in (statement, *denied)] == ["Allow", *("Deny" for _ in denied)]
    assert statement["Resource"] == {"Fn::Split": [",", {"Ref": parameter}]}
    assert properties(policy)["Roles"] == [{"Ref": "ProcessorRole"}]


def test_a_target_gets_the_one_action_of_its_service() -> None:
    """All targets are in one list: an action does not apply to ARNs of another service, and no wildcard is one."""
    statement, _ = properties("TasksReachTargets")["PolicyDocument"]["Statement"]
    rights = {action.partition(":")[0]: action for action in statement["Action"]}
    assert sorted(statement["Action"]) == sorted(rights.values()), "one for each service"
    pattern = TEMPLATE["Parameters"]["AllowedTargetArns"]["AllowedPattern"]
    services = {"events", "lambda", "sns", "sqs", "states"}
    assert set(rights) == services
    for service in (*services, "*", "s?s", "s3", "kinesis", ""):
        assert bool(re.fullmatch(pattern, f"arn:aws:{service}:us-east-1:123456789012:name/1*")) == (service in services)
    assert not re.fullmatch(pattern, "arn:aws:s3:a:sqs:b:c"), "nor is it another part of the ARN"


def test_no_task_reaches_a_function_or_a_queue_of_the_stack() -> None:
    """IAM can't deny what the processor does itself: invoke itself, send to the queues. It refuses these."""
    functions = [name for name in of_type("AWS::Serverless::Function") if name != "ProcessorFunction"]
    separator, parts = properties("ProcessorFunction")["Environment"]["Variables"]["DYNATICK_OWN_TARGETS"]["Fn::Join"]
    assert separator == ","
    named = [part.get("Fn::If", [None, part])[1] for part in parts]
    wanted = [
        *({"Ref": name} for name in functions),
        *({"Fn::GetAtt": [q, "QueueName"]} for q in of_type("AWS::SQS::Queue")),
    ]
    assert sorted(map(str, named)) == sorted(map(str, wanted))
    _, denied = properties("TasksReachTargets")["PolicyDocument"]["Statement"]
    assert (denied["Effect"], denied["Action"]) == ("Deny", "lambda:InvokeFunction")
    resources = [resource.get("Fn::If", [None, resource])[1] for resource in denied["Resource"]]
    assert sorted(map(str, resources)) == sorted(
        str(arn) for name in functions for arn in ({"Fn::GetAtt": [name, "Arn"]}, {"Fn::Sub": f"${{{name}.Arn}}:*"})
    )


def arn_for(parameter: str) -> str:
    service = {"AllowedTargetArns": "sqs", "AllowedKeyArns": "kms"}.get(parameter, "ssm")
    return f"arn:aws:{service}:us-east-1:123456789012:name/1*"


ALLOWED = [name for name in TEMPLATE["Parameters"] if name.startswith("Allowed") and name.endswith(("Arns", "ets"))]


@pytest.mark.parametrize(
    ("parameter", "good", "bad"),
    [
        *((name, arn_for(name), bad) for name in ALLOWED for bad in ("*", "key/1")),
        ("HandlersPolicyArns", "arn:aws:iam::aws:policy/AmazonSESFullAccess", "AmazonSESFullAccess"),
        ("HandlersPolicyArns", "arn:aws:iam::123456789012:policy/a/b", "arn:aws:iam::123456789012:role/a"),
        ("HandlersSecretArns", "arn:aws:ssm:*:*:parameter/a", "arn:aws:s3:::bucket"),
        ("HandlersSecretArns", "arn:aws:secretsmanager:a:1:secret:a-??????", "a"),
        ("HandlersSubnetIds", "subnet-0a1b2c3d", "vpc-0a1b2c3d"),
        ("HandlersSecurityGroupIds", "sg-0a1b2c3d", "subnet-0a1b2c3d"),
    ],
)
def test_a_list_accepts_its_kind_only(parameter: str, good: str, bad: str) -> None:
    pattern = TEMPLATE["Parameters"][parameter]["AllowedPattern"]
    assert all(re.fullmatch(pattern, text) for text in ("", good, f"{good},{good}"))
    assert not any(re.fullmatch(pattern, text) for text in (bad, f"{good},", f"{good}, {good}", f"{good},{bad}"))
    of_environment = TEMPLATE["Parameters"]["HandlersEnvironment"]["AllowedPattern"]
    assert of_environment == TEMPLATE["Parameters"]["HandlersSecrets"]["AllowedPattern"]
    assert [bool(re.fullmatch(of_environment, text)) for text in ("", '{"A":\n "{x}"}', "[{}]")] == [True, True, False]


# --- Import -------------------------------------------------------------------


def test_the_import_is_off_by_default() -> None:
    assert TEMPLATE["Parameters"]["ImportBucket"]["Default"] == "no"
    assert TEMPLATE["Conditions"]["HasImportBucket"] == {"Fn::Equals": [{"Ref": "ImportBucket"}, "yes"]}
    parts = {name for name in RESOURCES if name.startswith("Import")}
    assert parts == {name for name, one in RESOURCES.items() if "Import" in str(one.get("Condition"))}
    assert TEMPLATE["Outputs"]["ImportBucketName"]["Condition"] == "HasImportBucket"


def test_the_importers_own_files_never_start_it() -> None:
    pattern = properties("ImportRule")["EventPattern"]
    assert pattern["detail"] == {
        "bucket": {"name": [{"Ref": "ImportsBucket"}]},
        "object": {"key": [{"prefix": importer.IMPORTS}]},
    }
    assert not any(prefix.startswith(importer.IMPORTS) for prefix in (importer.ERRORS, importer.REPORTS))


def test_the_bucket_is_private_encrypted_and_kept() -> None:
    bucket = properties("ImportsBucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True} and bucket["BucketEncryption"]
    assert RESOURCES["ImportsBucket"]["DeletionPolicy"] == "RetainExceptOnCreate"
    rules = bucket["LifecycleConfiguration"]["Rules"]
    expiring = {rule["Prefix"] for rule in rules if "ExpirationInDays" in rule}
    assert expiring == {importer.ERRORS, importer.REPORTS}, "never what people put there"
    (statement,) = properties("ImportsBucketPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": False}})


# --- HTTP API -----------------------------------------------------------------


def test_the_api_has_one_route_with_an_authorizer_and_one_of_preflights_without() -> None:
    assert of_type("AWS::ApiGatewayV2::Route") == ["ApiRoute", "ApiPreflightRoute"]
    assert properties("ApiRoute")["RouteKey"] == "$default"
    assert properties("ApiRoute")["AuthorizationType"] == {
        "Fn::If": ["ApiTakesTokens", "JWT", {"Fn::If": ["ApiTakesEverybody", "NONE", "AWS_IAM"]}]
    }
    assert TEMPLATE["Parameters"]["ApiAuthorization"]["Default"] == "IAM"
    assert TEMPLATE["Conditions"]["ApiTakesEverybody"] == {"Fn::Equals": [{"Ref": "ApiAuthorization"}, "EVERYBODY"]}
    # The gateway answers preflights, but an authorizer on $default would refuse them first.
    assert RESOURCES["ApiPreflightRoute"]["Condition"] == "HasCorsOrigins"
    route = properties("ApiPreflightRoute")
    assert (route["RouteKey"], route["AuthorizationType"]) == ("OPTIONS /{proxy+}", "NONE")


def test_the_rules_refuse_secrets_for_any_host_and_seconds_with_rare_ticks() -> None:
    """The host * must be written explicitly."""
    secrets, hosts = (
        {"Fn::Not": [{"Fn::Equals": [{"Ref": name}, ""]}]} for name in ("AllowedSecrets", "AllowedWebhookHosts")
    )
    frequent = [str(minutes) for minutes in TICKS if minutes <= MAX_TICK_MINUTES]
    rules = {name: (rule["RuleCondition"], rule["Assertions"][0]["Assert"]) for name, rule in TEMPLATE["Rules"].items()}
    wanted_rules = {
        "SecretsGoToNamedHosts": (secrets, hosts),
        "SecondsNeedFrequentTicks": (
            {"Fn::Equals": [{"Ref": "Precision"}, "second"]}, {"Fn::Contains": [frequent, {"Ref": "TickMinutes"}]}
        ),
    }  # fmt: skip
    assert wanted_rules.items() <= rules.items()


def test_a_page_of_an_origin_that_may_call_the_api_may_send_each_header_that_it_takes() -> None:
    _, allowed, _ = properties("HttpApi")["CorsConfiguration"]["Fn::If"]
    operations = [one for methods in document()["paths"].values() for one in methods.values()]
    headers = {
        one["name"].lower() for each in operations for one in each.get("parameters", []) if one["in"] == "header"
    }
    assert {"if-match", "traceparent"} < headers
    assert headers <= set(allowed["AllowHeaders"])


def test_the_api_is_throttled_logged_and_closed_to_browsers() -> None:
    stage = properties("ApiStage")
    assert stage["DefaultRouteSettings"] == {
        "ThrottlingRateLimit": {"Ref": "ApiRequestsPerSecond"},
        "ThrottlingBurstLimit": {"Ref": "ApiRequestsPerSecond"},
    }
    line = json.loads(stage["AccessLogSettings"]["Format"])
    # Nothing that a caller can put a quote into, for the gateway escapes none.
    assert set(line.values()) - {"request"} == {
        "$context." + name
        for name in (
            "requestId", "requestTime", "identity.sourceIp", "identity.userArn", "httpMethod", "status",
            "responseLength", "responseLatency", "integrationStatus", "error.responseType",
        )
    }  # fmt: skip
    assert TEMPLATE["Parameters"]["ApiCorsOrigins"]["Default"] == ""
    condition, _, otherwise = properties("HttpApi")["CorsConfiguration"]["Fn::If"]
    assert (condition, otherwise) == ("HasCorsOrigins", {"Ref": "AWS::NoValue"})


# --- Queues and alarms --------------------------------------------------------


@pytest.mark.parametrize("queue", of_type("AWS::SQS::Queue"))
def test_queues_are_encrypted_reached_by_tls_only_and_keep_failures_for_14_days(queue: str) -> None:
    (policy,) = [name for name in of_type("AWS::SQS::QueuePolicy") if properties(name)["Queues"] == [{"Ref": queue}]]
    (denied,) = [one for one in properties(policy)["PolicyDocument"]["Statement"] if one["Effect"] == "Deny"]
    assert (denied["Principal"], denied["Action"]) == ("*", "sqs:*")
    assert denied["Resource"] == {"Fn::GetAtt": [queue, "Arn"]}
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": False}}
    kept = "RetainExceptOnCreate" if queue == "DeadLetterQueue" else None  # also when the stack is deleted
    assert RESOURCES[policy].get("DeletionPolicy") == RESOURCES[queue].get("DeletionPolicy") == kept
    assert RESOURCES[queue].get("UpdateReplacePolicy") == ("Retain" if kept else None)
    assert properties(queue)["SqsManagedSseEnabled"] is True
    minutes = 20 if queue == "WakeUpQueue" else 14 * 24 * 60  # a late wake-up is of no use
    assert properties(queue)["MessageRetentionPeriod"] == minutes * 60


def test_wake_ups_come_one_by_one_and_stay_invisible_while_one_runs() -> None:
    queue, mapping = properties("WakeUpQueue"), properties("WakeUpMapping")
    assert queue["VisibilityTimeout"] == {"Ref": "ProcessorTimeoutSeconds"}
    assert "RedrivePolicy" not in queue
    assert (mapping["BatchSize"], mapping["Enabled"]) == (1, {"Fn::If": ["TakesWakeUps", True, False]})
    assert mapping["ScalingConfig"] == {
        "MaximumConcurrency": {"Fn::If": ["IsEmulator", 10, {"Ref": "WakeUpConcurrency"}]}
    }


def test_missing_ticks_notify_only_after_a_first_tick() -> None:
    """A new stack has no tick in the last three intervals either."""
    assert of_type("AWS::CloudWatch::CompositeAlarm") == ["TicksMissingAlarm"]
    missing = properties("TicksMissingAlarm")
    assert missing["AlarmRule"] == {"Fn::Sub": 'ALARM("${NoTickAlarm}") AND OK("${TicksBeganAlarm}")'}
    assert missing["AlarmActions"] == missing["OKActions"] == [{"Ref": "AlarmTopicArn"}]
    assert missing["ActionsEnabled"] == {"Fn::If": ["TicksRun", True, False]}
    silent, began = properties("NoTickAlarm"), properties("TicksBeganAlarm")
    assert (silent["MetricName"], silent["TreatMissingData"]) == ("TickAge", "breaching")
    assert (began["MetricName"], began["TreatMissingData"]) == ("TickAge", "ignore")
    # No period that has data has fewer than one sample: the second is OK from the first one on.
    for alarm in (silent, began):
        assert (alarm["Statistic"], alarm["ComparisonOperator"], alarm["Threshold"]) == (
            "SampleCount", "LessThanThreshold", 1
        )  # fmt: skip


def test_late_wake_ups_ring_with_precision_second_and_only_if_there_are_more() -> None:
    assert RESOURCES["WakeUpsLateAlarm"]["Condition"] == "RunsToTheSecond"
    alarm = properties("WakeUpsLateAlarm")
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == ("WokenLate", "Sum", 0)
    assert 1 < alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"], "one lost wake-up is no fault; ticks are rare"


def test_every_queue_of_failures_alarms_on_what_is_sent_to_it() -> None:
    """By any sender: the processor, the scheduler, a rule, or Lambda itself. An old message keeps no alarm on: it could
    not report the next failure until the queue is empty."""
    places = [one.get(key) for one in every_mapping(RESOURCES) for key in ("OnFailure", "DeadLetterConfig")]
    queues = {one["Fn::GetAtt"][0] for one in every_mapping(places) if "Fn::GetAtt" in one}
    by_functions = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]["DYNATICK_DEAD_LETTER_QUEUE_URL"]["Ref"]
    assert (queues, by_functions) == ({"StreamFailureQueue"}, "DeadLetterQueue")
    (lost,) = [one for one in map(watched, of_type("AWS::CloudWatch::Alarm")) if one["Namespace"] == "AWS/SQS"]
    assert (lost["MetricName"], lost["Statistic"]) == ("NumberOfMessagesSent", "Sum")
    assert lost["Dimensions"] == [{"Name": "QueueName", "Value": {"Fn::GetAtt": ["StreamFailureQueue", "QueueName"]}}]
    # SQS reports up to 15 minutes late what comes into a queue that was idle for long.
    assert lost["Period"] * (lost["EvaluationPeriods"] - 1) > 15 * 60 and lost["DatapointsToAlarm"] == 1
    # So what our own functions send they count themselves; the metric's dimension is what two functions share.
    failed = watched("TasksFailedAlarm")
    assert (failed["Namespace"], failed["MetricName"], failed["Statistic"]) == ("Dynatick", "DeadLetters", "Sum")
    assert failed["Dimensions"] == [{"Name": "service", "Value": {"Ref": "TasksTable"}}]
    assert TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]["DYNATICK_TABLE"] == {"Ref": "TasksTable"}
    # SQS does not count there what it moves by itself.
    assert not [one for one in every_mapping(RESOURCES) if "RedrivePolicy" in one]


def test_an_alarm_on_dynamodb_ends_although_what_is_not_throttled_sends_no_data() -> None:
    """An alarm on its metrics keeps its state when data are missing, whatever TreatMissingData says (PutMetricAlarm in
    the API's reference)."""
    on_table = [one for one in of_type("AWS::CloudWatch::Alarm") if watched(one)["Namespace"] == "AWS/DynamoDB"]
    assert on_table == ["IndexThrottledAlarm"]
    metric, expression = properties("IndexThrottledAlarm")["Metrics"]
    assert (metric["ReturnData"], expression["ReturnData"]) == (False, True)
    assert expression["Expression"] == f"FILL({metric['Id']}, 0)"
    assert TEMPLATE["Conditions"][RESOURCES["IndexThrottledAlarm"]["Condition"]] == {
        "Fn::Not": [{"Condition": "IsEmulator"}]
    }


def watched(name: str) -> dict[str, Any]:
    """What an alarm watches, by one metric or by metric math of one."""
    alarm = properties(name)
    if "Metrics" not in alarm:
        return alarm
    (metric,) = [one["MetricStat"] for one in alarm["Metrics"] if "MetricStat" in one]
    return {**alarm, **metric["Metric"], "Statistic": metric["Stat"], "Period": metric["Period"]}


def every_mapping(value: object) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(one for part in value.values() for one in every_mapping(part))]
    return [one for part in value for one in every_mapping(part)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", of_type("AWS::CloudWatch::Alarm"))
def test_alarms_watch_metrics_that_there_are_over_periods_that_cloudwatch_allows_and_notify_the_topic(
    name: str,
) -> None:
    alarm = watched(name)
    if alarm["Namespace"] == "Dynatick":
        written = (template.ROOT / "shared" / "dynatick" / "observability.py").read_text()
        counted = {counter.metric for counter in COUNTERS}
        assert alarm["MetricName"] in counted or f'"{alarm["MetricName"]}"' in written
    of_ticks = [TEMPLATE["Mappings"]["Tick"][str(tick)]["Seconds"] for tick in TICKS]
    for period in [alarm["Period"]] if isinstance(alarm["Period"], int) else of_ticks:
        assert period % 60 == 0
        assert alarm["EvaluationPeriods"] * period <= (7 * 86_400 if period >= 3600 else 86_400)
    if name in ("NoTickAlarm", "TicksBeganAlarm"):  # an alarm of both tells
        assert "AlarmActions" not in alarm
    else:
        assert alarm["AlarmActions"]["Fn::If"][:2] == ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}]]


# --- Dashboard ----------------------------------------------------------------


def dashboard(*, conditional: bool = True) -> dict[str, Any]:
    """The body as CloudFormation makes it, but with names of resources as ``${…}``."""
    text, variables = properties("OverviewDashboard")["DashboardBody"]["Fn::Sub"]
    for name, value in variables.items():
        if "Fn::If" in value:
            condition, then, otherwise = value["Fn::If"]
            (alarm,) = re.findall(r"\$\{(\w+)\.Arn\}", then["Fn::Sub"])
            assert RESOURCES[alarm]["Condition"] == condition
            text = text.replace(f"${{{name}}}", then["Fn::Sub"] if conditional else otherwise)
        else:
            table, key, column = value["Fn::FindInMap"]
            assert key == {"Ref": "TickMinutes"}
            text = text.replace(f"${{{name}}}", str(TEMPLATE["Mappings"][table]["5"][column]))
    body: dict[str, Any] = json.loads(text)
    return body


def test_the_dashboard_has_each_alarm_that_notifies() -> None:
    whole, smallest = (dashboard(conditional=conditional)["widgets"][0] for conditional in (True, False))
    notifying = {name for name in of_type("AWS::CloudWatch::Alarm") if "AlarmActions" in properties(name)}
    assert (whole["type"], set(whole["properties"]["alarms"])) == (
        "alarm", {f"${{{name}.Arn}}" for name in notifying | {"NoTickAlarm"}},
    )  # fmt: skip
    unconditional = {name for name in notifying | {"NoTickAlarm"} if "Condition" not in RESOURCES[name]}
    assert set(smallest["properties"]["alarms"]) == {f"${{{name}.Arn}}" for name in unconditional}


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    shown: set[tuple[str, ...]] = set()  # namespace, name, dimensions; the body has short forms of them
    for widget in dashboard()["widgets"][1:]:
        before: list[str] = []
        for entry in widget["properties"]["metrics"]:
            parts = [part for part in entry if isinstance(part, str)]
            if parts not in ([], ["..."]):
                before = [before[n] if part == "." else part for n, part in enumerate(parts)]
                shown.add(tuple(before))
    ours = {one for one in shown if one[0] == "Dynatick"}
    assert {one[2:] for one in ours} == {("service", "${AWS::StackName}-processor")}
    names = {name for _, name, *_ in ours}
    assert {"Completed", "Failed", "Lateness", "TickAge", "Undrained"} <= names
    assert names <= set(described("metrics.md")["The processor"])
    writes = ("AWS/DynamoDB", "WriteThrottleEvents", "TableName", "${TasksTable}")
    assert shown - ours == {
        ("AWS/SQS", "NumberOfMessagesSent", "QueueName", "${DeadLetterQueue.QueueName}"),
        ("AWS/SQS", "NumberOfMessagesSent", "QueueName", "${StreamFailureQueue.QueueName}"),
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", "${DeadLetterQueue.QueueName}"),
        ("AWS/Lambda", "IteratorAge", "FunctionName", "${SchedulerFunction}"),
        *(("AWS/Lambda", "Throttles", "FunctionName", f"${{{name}Function}}") for name in ("Processor", "Scheduler")),
        ("AWS/DynamoDB", "ReadThrottleEvents", "TableName", "${TasksTable}"),
        writes, (*writes, "GlobalSecondaryIndexName", index("taskDateTime-index")["IndexName"]),
    }  # fmt: skip


def test_lists_that_aws_takes_otherwise_are_refused() -> None:
    policy = "arn:aws:iam::aws:policy/P"
    for name, refused, accepted in (
        ("ApiJwtAudience", ["a, b", " a", "a,"], ["", "a", "a,b", "one app,b"]),
        ("ApiCorsOrigins", ["https://a, https://b", "https://a,"], ["", "*", "https://a,https://b"]),
        ("HandlersPolicyArns", [",".join([policy] * 11)], ["", ",".join([policy] * 10)]),
    ):
        for value in accepted:
            template.check_parameters({name: value}, TEMPLATE)
        for value in refused:
            with pytest.raises(RefusedError, match=f"^{name} can't be "):
                template.check_parameters({name: value}, TEMPLATE)
