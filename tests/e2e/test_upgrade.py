"""Upgrade and rollback on the emulator: tasks that wait meanwhile run, whichever template is in force."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.e2e.previous_template import NEWEST, previous_template
from tests.e2e.released import Released
from tests.e2e.support import eventually, now

from dynatick.client import TaskClient
from dynatick_stack import template
from dynatick_stack.emulator import Emulator
from dynatick_stack.errors import DeployError
from dynatick_stack.init import write_project

pytestmark = pytest.mark.long

OWN = '[stack]\nname = "mine"\nregion = "us-east-1"\n[handlers]\n'
TO_THE_SECOND = '[parameters]\nPrecision = "second"\n'
MAIL = {"to": "ada@example.com", "text": "It is time"}


@pytest.fixture
def mine(tmp_path: Path, aws: Emulator) -> Released:
    folder = tmp_path / "mine"
    write_project(folder)
    (folder / "dynatick.toml").write_text(OWN + TO_THE_SECOND)
    return Released(folder, aws, "mine", state_dir=tmp_path / "aws" / "local")


def deploy_previous(mine: Released) -> None:
    layer = mine.layer_of_handlers()
    mine.deploy_template(previous_template(), HandlersModule="handlers", HandlersLayerArn=layer)


def insert(client: TaskClient, prefix: str) -> list[str]:
    """Tasks that are due while the next deployment runs, at and after its end, and one without a time."""
    start = now()
    due = {f"{prefix}-{n:02}": start + timedelta(seconds=3 * n) for n in range(15)}
    client.insert_many(
        {"taskId": task_id, "dueAt": at.isoformat(), "action": "send-reminder", "payload": MAIL}
        for task_id, at in due.items()
    )
    client.store.create({"taskId": f"{prefix}-raw", "action": "send-reminder", "payload": MAIL})
    return [*due, f"{prefix}-raw"]


def run_to_end(client: TaskClient, task_ids: list[str]) -> None:
    def open_ones() -> list[object]:
        return [view for view in map(client.get, task_ids) if view.status != "completed"]

    eventually(lambda: not open_ones(), within=210, what=open_ones)


def test_tasks_run_through_an_upgrade_and_the_way_back(mine: Released) -> None:
    deploy_previous(mine)
    assert not NEWEST & mine.stack.parameters().keys()
    client = mine.client()
    client.schedules.insert(
        "each-minute", "rate(1 minute)", action="send-reminder", payload=MAIL, catch_up="all", overlap="allow"
    )

    before = insert(client, "before")
    mine.deploy()
    assert mine.stack.parameters()["Precision"] == "second"
    assert "WakeUpQueue" in {one["LogicalResourceId"] for one in mine.stack.resources()}
    run_to_end(client, [*before, *insert(client, "upgraded")])

    waiting = insert(client, "way-back")
    deploy_previous(mine)
    assert "WakeUpQueue" not in {one["LogicalResourceId"] for one in mine.stack.resources()}
    run_to_end(client, [*waiting, *insert(client, "back")])

    again = insert(client, "again")
    mine.deploy()
    run_to_end(client, again)
    eventually(lambda: len(client.schedules.history("each-minute")) > 4, within=120)
    occurrences = [one.status for one in client.schedules.history("each-minute", end=now() - timedelta(minutes=1))]
    assert set(occurrences) == {"completed"}


@pytest.mark.xdist_group("update that fails")  # for another process: together they last longest of all
def test_an_update_that_fails_is_taken_back_and_tasks_run_on(mine: Released) -> None:
    deploy_previous(mine)
    before, client = mine.stack.parameters(), mine.client()
    waiting = insert(client, "before")
    wrong = template.load()
    wrong["Resources"]["Wrong"] = {  # it fails when all else has been changed
        "Type": "AWS::SQS::Queue",
        "Properties": {"VisibilityTimeout": 99_999_999},
        "DependsOn": ["ProcessorFunction", "SchedulerFunction", "WakeUpMapping"],
    }
    with pytest.raises(DeployError) as failed:
        mine.deploy_template(wrong, Precision="second")
    assert "The deployment failed (UPDATE_ROLLBACK_COMPLETE); what it changed was taken back:" in str(failed.value)
    assert "\n  Wrong: Invalid value for the parameter VisibilityTimeout" in str(failed.value)
    assert mine.stack.parameters() == before
    assert "WakeUpQueue" not in {one["LogicalResourceId"] for one in mine.stack.resources()}
    run_to_end(client, [*waiting, *insert(client, "after")])
    mine.deploy()
    run_to_end(client, insert(client, "upgraded"))
