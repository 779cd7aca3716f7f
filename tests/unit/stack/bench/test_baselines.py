"""The baselines are what they are said to be."""

from __future__ import annotations

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from freezegun import freeze_time

from dynatick.domain.buckets import Bucket
from dynatick_stack.bench.baselines import THREADS, Form, RawConnection


def test_the_threads_of_single_writes_are_pinned() -> None:
    assert THREADS == (1, 4, 16)


def test_a_statement_is_filled_in_for_another_task() -> None:
    bucket = Bucket.parse("2026-12-31#12:01")
    form = Form(
        {
            "Statement": 'UPDATE "example" SET "lease"=? WHERE "taskId"=? AND "taskDateTime"=?',
            "Parameters": [{"S": "process.7"}, {"S": "example-0"}, {"S": "2026-12-31#12:00"}],
        },
        table="example",
        task_id="example-0",
        bucket="2026-12-31#12:00",
        token="process",
    )
    fill = form.on("tasks", bucket)
    assert fill("t1", "token-1") == {
        "Statement": 'UPDATE "tasks" SET "lease"=? WHERE "taskId"=? AND "taskDateTime"=?',
        "Parameters": [{"S": "token-1"}, {"S": "t1"}, {"S": "2026-12-31#12:01"}],
    }
    assert fill("t2", "token-2")["Parameters"][0] == {"S": "token-2"}


@freeze_time("2026-12-31T12:00:00Z")
def test_the_signature_by_hand_is_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    body = b'{"TableName": "tasks"}'
    by_hand = RawConnection("https://dynamodb.us-east-1.amazonaws.com")._headers("DynamoDB_20120810.Query", body)
    names = ("Content-Type", "X-Amz-Target")
    request = AWSRequest(
        "POST", "https://dynamodb.us-east-1.amazonaws.com/", data=body, headers={name: by_hand[name] for name in names}
    )
    SigV4Auth(Credentials("key", "secret"), "dynamodb", "us-east-1").add_auth(request)
    assert by_hand["Authorization"] == request.headers["Authorization"]
