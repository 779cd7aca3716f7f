"""The schedules of a project: what dynatick.toml and handlers say, what is refused, and what a deployment does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.stack.test_dev import LIBRARIES
from tests.unit.stack.test_waiting_payloads import Stack

from dynatick import TaskClient
from dynatick.domain.buckets import Grid
from dynatick.engine.settings import publish_settings
from dynatick.errors import StoreError
from dynatick_stack import declared_schedules, project, template
from dynatick_stack.dev import handlers
from dynatick_stack.dev.handlers import Checked, HandlersError
from dynatick_stack.dev.session import Session
from dynatick_stack.errors import RefusedError
from dynatick_stack.project import Project
from dynatick_stack.project_files import project_files

HANDLERS = """
from dataclasses import dataclass
from decimal import Decimal
from dynatick import task

@dataclass
class Digest:
    user: str
    cents: Decimal = Decimal("1.50")

@task("digest")
def digest(digest: Digest) -> None: ...

@task("raw")
def raw(payload: dict[str, object]) -> None: ...

digest.declare_schedule("cron(0 6 * * ? *)", Digest("ada"), schedule_id="digest", timezone="Europe/Berlin")
raw.declare_schedule("rate(1 hour)", {"n": Decimal("1.50")}, schedule_id="raw")
"""
TOML = """
[stack]
name = "mine"

[schedules.heartbeat]
scheduleExpression = "rate(5 minutes)"
startDate = 2027-01-01T00:00:00Z
action = "log"
payload = { ratio = 1.5 }

[stages.prod.schedules.heartbeat]
scheduleExpression = "rate(1 minute)"
"""
SCHEMA = '{"type": "object", "properties": {"user": {"type": "string"}}, "required": ["user"]}'
KNOWN = Checked(actions={"digest": SCHEMA}, schedules=())


def read(folder: Path, text: str = TOML) -> Project:
    (folder / "dynatick.toml").write_text(text)
    (folder / "handlers.py").write_text(HANDLERS)
    return project.read(folder)


def check(found: Project) -> Checked:
    return handlers.check(found, project_files(found), LIBRARIES, None, {})


def test_handlers_and_settings_declare_each_stage_with_its_own(tmp_path: Path) -> None:
    found = read(tmp_path)
    rows = {row["taskId"]: row for row in declared_schedules.declared(found, check(found))}
    assert list(rows) == ["digest", "raw", "heartbeat"]
    assert rows["digest"]["payload"] == {"user": "ada", "cents": "1.50"}
    assert str(rows["raw"]["payload"]["n"]) == "1.50"  # type: ignore[index]
    assert rows["heartbeat"]["startDate"] == "2027-01-01T00:00:00+00:00"
    prod = declared_schedules.declared(found.of("prod"), KNOWN)
    assert [(one["scheduleExpression"], one["action"]) for one in prod] == [("rate(1 minute)", "log")]
    assert ("[schedules] heartbeat scheduleExpression", "[stages.prod.schedules]") in {
        (one.name, one.source) for one in found.of("prod").settings
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[schedules]\nx = 3", "schedules.x is a table; write [schedules.x]"),
        (
            "[schedules.x]\naction = 'log'",
            "[schedules.x] scheduleExpression is missing; expected when it runs, such as",
        ),
        ("[schedules.x]\nexpression = 'rate(1 hour)'", "[schedules.x] expression is not known; did you mean schedule"),
        ("[schedules.x]\nscheduleState = 'DISABLED'", "[schedules.x] scheduleState is not known"),
        ("[schedules.x]\nscheduleExpression = 'daily'", "schedules.x.scheduleExpression: 'daily' is not accepted; exp"),
        ("[schedules.x]\nscheduleExpression = 'rate(1 hour)'\ncatchUp = 'some'", "schedules.x.catchUp: 'some' is not"),
        ("[schedules.x]\nscheduleExpression = 'rate(1 hour)'\nstartDate = 2027-01-01", "schedules.x.startDate: '2027-"),
        ("[schedules.x]\nscheduleExpression = 'rate(1 hour)'\naction = 'lgo'", "schedules.x.action: 'lgo' is not acc"),
        ("[schedules.x]\nscheduleExpression = 'rate(1 hour)'\naction = 'digest'", "schedules.x.payload"),
        ("[stages.prod.schedules.y]\naction = 'log'", "[stages.prod.schedules.y] scheduleExpression is missing"),
    ],
)
def test_what_is_wrong_in_the_settings_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(said)):
        declared_schedules.declared(read(tmp_path, f'[stack]\nname = "mine"\n{text}\n'), KNOWN)


def test_one_id_is_declared_once_and_payloads_of_functions_fit(tmp_path: Path) -> None:
    found = read(tmp_path, TOML.replace("heartbeat", "digest"))
    with pytest.raises(RefusedError, match="taskId: 'digest' is not accepted; expected each id once"):
        declared_schedules.declared(found, check(found))
    with (tmp_path / "handlers.py").open("a") as file:
        file.write("digest.declare_schedule('rate(1 hour)', Digest(3), schedule_id='x')\n")
    with pytest.raises(HandlersError, match=r"schedules\.x\.payload\.user: .* Input should be a valid string"):
        check(found)


def test_what_has_passed_is_no_reason_to_refuse_a_deployment(tmp_path: Path) -> None:
    text = '[stack]\nname = "mine"\n[schedules.once]\nscheduleExpression = "at(2020-01-01T12:00:00)"\n'
    assert len(declared_schedules.declared(read(tmp_path, text), KNOWN)) == 1


def test_a_deployment_shows_what_it_would_do_and_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, said = InProcess(), list[str]()
    client = TaskClient(world.store, clock=world.clock)
    monkeypatch.setattr(TaskClient, "connect", lambda table, **where: client)
    rows = [{"taskId": "a", "scheduleExpression": "rate(1 hour)", "action": "not deployed yet"}]

    def plan(rows: Any, outputs: Any) -> list[str]:
        stack: Any = Stack(outputs)
        stack.name = "mine"
        return list(map(declared_schedules.line, declared_schedules.plan(stack, rows, profile=None, say=said.append)))

    deployed = {"TasksTableName": "tasks"}
    create = "  create    a                                schedule"
    assert plan(rows, None) == plan(rows, {}) == plan(rows, deployed) == [create]
    assert client.schedules.list().schedules == ()
    declared_schedules.sync(client, rows, owner="mine")
    assert plan([], deployed) == [
        f"{create.replace('create', 'remove')}                         it is no longer declared"
    ]
    monkeypatch.setattr(TaskClient, "connect", lambda table, **where: fails())
    assert plan([], deployed) == []
    assert said == ["Whether schedules are to be removed is not known: not allowed"]
    with pytest.raises(StoreError, match="not allowed"):
        plan(rows, deployed)


def fails() -> None:
    raise StoreError("not allowed")


def test_a_session_goes_on_with_the_schedules_that_it_has(tmp_path: Path) -> None:
    world, said = InProcess(), list[str]()
    session = Session(project=read(tmp_path), root=tmp_path, state_dir=tmp_path, say=said.append)
    session.client = TaskClient(world.store, clock=world.clock)
    daily = {"taskId": "daily", "scheduleExpression": "rate(1 day)", "action": "log"}
    session._schedules = [daily, {**daily, "taskId": "launch", "scheduleExpression": "at(2020-01-01T12:00:00)"}]
    session._sync_schedules()
    session._schedules = [{**daily, "startDate": "2019-01-01T00:00:00Z", "endDate": "2020-01-01T00:00:00Z"}]
    session._sync_schedules()
    assert [one[10:].split(" after ")[0] for one in said[:2]] == [
        "schedule   created          daily",
        "schedule   over             launch           it never runs",
    ]
    assert "schedules.daily.endDate: '2020-01-01T00:00:00Z' is not accepted; it never runs" in said[2]
    assert said[2].endswith("The schedules stay as they are")


def test_a_limit_key_needs_a_class_that_is_deployed_with_it(tmp_path: Path) -> None:
    text = """[stack]
name = "mine"
{limits}
[schedules.nightly]
scheduleExpression = "rate(1 day)"
action = "log"
limitKey = "tenant:1"
"""
    for limits, expected in (
        ("", None),  # those of the stack stay
        ('[parameters]\nKeyLimits = "tenant=1"', None),
        ('[parameters]\nKeyLimits = "host=1"', r"^schedules\.nightly\.limitKey: 'tenant:1' .*: the classes are host$"),
        ('[parameters]\nKeyLimits = "tenant"', "^KeyLimits: 'tenant' is not a limit"),
    ):
        project = read(tmp_path, text.format(limits=limits))
        if expected is None:
            assert len(declared_schedules.declared(project, KNOWN)) == 1
        else:
            with pytest.raises(RefusedError, match=expected):
                declared_schedules.declared(project, KNOWN)


def test_what_is_declared_is_checked_with_all_parameters_that_the_stack_will_have(tmp_path: Path) -> None:
    schedule = '[schedules.x]\nscheduleExpression = "rate(1 day)"\n'
    toml = '[stack]\nname = "mine"\n' + schedule
    queue = "arn:aws:sqs:eu-central-1:123456789012:q"
    to_queue = f'action = "sqs"\npayload = {{ queueArn = "{queue}", message = "x" }}'
    for declares, parameter, expected in (
        ('action = "raw"\ntimeoutSeconds = 600', {}, r"schedules\.x\.timeoutSeconds: 600 .* at most 112"),
        ('action = "raw"\ntimeoutSeconds = 600', {"ProcessorTimeoutSeconds": "900"}, None),
        ('action = "log"', {"AllowedActions": "digest,raw"}, r"action: 'log' .* expected one of digest, raw"),
        (to_queue, {}, "action: 'sqs' .* expected one of digest, log, raw, webhook$"),
        (to_queue, {"AllowedTargetArns": queue}, None),
        ("", {"DefaultAction": "nothing"}, "action: 'nothing' .* expected one of"),
        ("", {"DefaultAction": "raw"}, None),
        ('action = "raw"\nlimitKey = "tenant:1"', {}, "limitKey: 'tenant:1' is not accepted"),
        ('action = "raw"\nlimitKey = "tenant:1"', {"KeyLimits": "tenant=1"}, None),
    ):
        found, parameters = read(tmp_path, toml + declares), {**template.defaults(), **parameter}
        checked = handlers.check(found, project_files(found), LIBRARIES, None, {}, parameters)
        if expected is None:
            assert [row["taskId"] for row in declared_schedules.declared(found, checked, parameters)][-1] == "x"
        else:
            with pytest.raises(RefusedError, match=expected):
                declared_schedules.declared(found, checked, parameters)


def test_a_deployment_is_not_held_to_the_longest_timeout_of_the_one_before() -> None:
    world = InProcess()
    publish_settings(world.store, Grid(), now=world.clock(), max_timeout_seconds=112)
    rows = [{"taskId": "x", "scheduleExpression": "rate(1 day)", "timeoutSeconds": 600}]
    client = TaskClient(world.store, clock=world.clock)
    assert [one.result for one in declared_schedules.sync(client, rows, owner="mine")] == ["create"]
