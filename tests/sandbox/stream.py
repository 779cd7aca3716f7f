"""The table's stream, read and delivered by hand, so that records can come twice, late, or in another order."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dynatick_stack import template

Record = dict[str, Any]


class Stream:
    """The records since it was opened, once each. (The emulator's PartiQL writes leave none.)"""

    def __init__(self, table: str, client: Callable[[str], Any], *, outcome_events: str = "off") -> None:
        """``client``: makes a client of a service."""
        arn = client("dynamodb").describe_table(TableName=table)["Table"]["LatestStreamArn"]
        self._client = client("dynamodbstreams")
        (shard,) = self._client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        self._at = self._client.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        self._patterns = patterns(outcome_events=outcome_events)

    def new(self) -> list[Record]:
        """Returns the records since the last call that pass the template's filter."""
        records: list[Record] = []
        while True:
            read = self._client.get_records(ShardIterator=self._at)
            self._at = read["NextShardIterator"]
            if not read["Records"]:
                break
            records += as_event(read["Records"])
        return [record for record in records if any(matches(pattern, record) for pattern in self._patterns)]


def as_event(records: Sequence[Record]) -> list[Record]:
    """Returns records that the SDK has read as a Lambda event holds them."""
    event: list[Record] = json.loads(json.dumps(records, default=_as_json))
    return event


def sequence(record: Record) -> str:
    """Returns the name of a record in a partial batch response."""
    number: str = record["dynamodb"]["SequenceNumber"]
    return number


def not_done(batch: Sequence[Record], response: Mapping[str, Any]) -> Sequence[Record]:
    """Returns the records that Lambda delivers again: from the first that failed."""
    failed = {failure["itemIdentifier"] for failure in response["batchItemFailures"]}
    return batch[next((n for n, record in enumerate(batch) if sequence(record) in failed), len(batch)) :]


def matches(pattern: dict[str, Any], record: dict[str, Any]) -> bool:
    """How AWS reads a filter pattern, as far as ours go: conditions are on leaves only."""
    return all(
        matches(wanted, record.get(key) or {}) if isinstance(wanted, dict) else _leaf(wanted, record, key)
        for key, wanted in pattern.items()
    )


def _leaf(conditions: list[Any], record: dict[str, Any], key: str) -> bool:
    value = record.get(key)
    present = key in record and not isinstance(value, dict)
    for condition in conditions:
        match condition:
            case {"exists": wanted} if present == wanted:
                return True
            case {"anything-but": list(others)} if present and value not in others:
                return True
            case str() if value == condition:
                return True
    return False


OF_CONDITION = {"HasAllOutcomeEvents": ("all",), "HasOutcomeEvents": ("failed", "all")}


def patterns(*, emulator: bool = False, outcome_events: str = "off") -> list[dict[str, Any]]:
    """The template's filter of the stream: a record passes if one of them matches."""
    function = template.load()["Resources"]["SchedulerFunction"]["Properties"]
    mapping = function["Events"]["TaskWritten"]["Properties"]
    texts = []
    for one in mapping["FilterCriteria"]["Filters"]:
        while "Fn::If" in one:
            condition, then, otherwise = one["Fn::If"]
            one = then if outcome_events in OF_CONDITION[condition] else otherwise
        if "Pattern" not in one:
            continue  # AWS::NoValue
        pattern = one["Pattern"]
        if isinstance(pattern, dict):
            condition, then, otherwise = pattern["Fn::If"]
            assert condition == "IsEmulator"
            pattern = then if emulator else otherwise
        texts.append(json.loads(pattern))
    return texts


def _as_json(value: object) -> str:
    """Binaries are base64 in a Lambda event."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
