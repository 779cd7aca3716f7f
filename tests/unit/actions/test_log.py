"""The action log."""

import logging

import pytest
from boto3.dynamodb.types import Binary
from tests.unit.actions.support import a_context, a_task

from dynatick.actions.log import Log


@pytest.mark.parametrize("payload", [{}, {"b": Binary(b"hunter2"), "s": {"hunter2"}}, {"odd": object()}])
def test_one_line_with_ids_and_without_payload(payload, caplog):
    caplog.set_level(logging.INFO, "dynatick.actions")
    task = a_task(payload, task_id="t-7", attempt=2)
    assert Log().run(task, a_context(task)) is None
    (record,) = caplog.records
    assert record.getMessage() == record.action == "task_logged"
    assert (record.task_id, record.attempt) == ("t-7", 2)
    assert record.due_at == "2026-12-31T11:59:30Z"
    assert "hunter2" not in str(record.__dict__)
