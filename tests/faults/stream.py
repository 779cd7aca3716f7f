"""The table's stream, read and delivered by hand, so that records can come twice, late, or in another order."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import boto3
from tests.unit.test_template import matches, patterns

Record = dict[str, Any]


class Stream:
    """The records since it was opened, once each. (The emulator's PartiQL writes leave none.)"""

    def __init__(self, table: str, endpoint: str) -> None:
        described = boto3.client("dynamodb", endpoint_url=endpoint).describe_table(TableName=table)
        arn = described["Table"]["LatestStreamArn"]
        self._client = boto3.client("dynamodbstreams", endpoint_url=endpoint)
        (shard,) = self._client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        self._at = self._client.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        self._patterns = patterns(emulator=False)

    def new(self) -> list[Record]:
        """What came since the last call and passes the template's filter, as Lambda gets it."""
        records: list[Record] = []
        while True:
            read = self._client.get_records(ShardIterator=self._at)
            self._at = read["NextShardIterator"]
            if not read["Records"]:
                break
            records += json.loads(json.dumps(read["Records"], default=_as_json))
        return [record for record in records if any(matches(pattern, record) for pattern in self._patterns)]


def sequence(record: Record) -> str:
    """What names a record in a partial batch response."""
    number: str = record["dynamodb"]["SequenceNumber"]
    return number


def batches(records: Sequence[Record], size: int = 100) -> list[Sequence[Record]]:
    return [records[n : n + size] for n in range(0, len(records), size)]


def _as_json(value: object) -> str:
    """Binaries are base64 in a Lambda event."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
