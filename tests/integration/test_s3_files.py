"""Objects in S3, as the importer reads and writes them, on moto."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from dynatick.bulk.importer import FileGone
from dynatick.bulk.s3 import S3Files
from dynatick.errors import StoreError


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="files")
        yield client


def test_a_file_is_read_in_pieces_until_it_changes(s3: Any) -> None:
    files = S3Files(s3)
    etag = s3.put_object(Bucket="files", Key="imports/a", Body=b"0123456789")["ETag"].strip('"')
    assert files.read("files", "imports/a", etag=etag, start=0, size=4) == b"0123"
    assert files.read("files", "imports/a", etag=etag, start=8, size=4) == b"89"
    s3.put_object(Bucket="files", Key="imports/a", Body=b"another one")
    with pytest.raises(FileGone, match="imports/a was deleted or replaced meanwhile"):
        files.read("files", "imports/a", etag=etag, start=4, size=4)
    s3.delete_object(Bucket="files", Key="imports/a")
    with pytest.raises(FileGone):
        files.read("files", "imports/a", etag=etag, start=4, size=4)


def test_small_objects(s3: Any) -> None:
    files = S3Files(s3)
    assert files.get("files", "reports/a.json") is None
    files.put("files", "reports/a.json", io.BytesIO(b"{}"), "application/json")
    assert files.get("files", "reports/a.json") == b"{}"
    assert s3.head_object(Bucket="files", Key="reports/a.json")["ContentType"] == "application/json"


def test_errors_of_s3_become_store_errors(s3: Any) -> None:
    files = S3Files(s3)
    with pytest.raises(StoreError, match="cannot read reports/a"):
        files.get("no-such-bucket", "reports/a")
    with pytest.raises(StoreError, match="cannot write reports/a"):
        files.put("no-such-bucket", "reports/a", io.BytesIO(b""), "text/plain")
    with pytest.raises(StoreError, match="cannot read imports/a"):
        files.read("no-such-bucket", "imports/a", etag="e", start=0, size=1)
