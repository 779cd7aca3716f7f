"""Transactions: the parts that others give us, and why DynamoDB cancels one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from botocore.exceptions import ClientError

from dynatick.domain import attributes as attr
from dynatick.domain.completion import KINDS
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.task import Row
from dynatick.engine.ports import Cancelled
from dynatick.errors import InvalidInput
from dynatick.store.codec import encode_value

_TEXTS: Final = ("TableName", "ConditionExpression", "UpdateExpression", "ReturnValuesOnConditionCheckFailure")
_VALUES: Final = ("Item", "Key", "ExpressionAttributeValues")

_AGAIN: Final = frozenset({
    "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded",  # of one part
    "TransactionInProgressException", "TransactionConflictException",
})  # fmt: skip
_THROTTLED: Final = frozenset({
    "ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"
})  # fmt: skip
_NEVER: Final = frozenset(
    {"ValidationError", "ValidationException", "ResourceNotFoundException", "SerializationException"}
)
_REFUSED: Final = _NEVER | _THROTTLED | {"AccessDeniedException", "ItemCollectionSizeLimitExceeded"}


def encoded_entry(
    item: Mapping[str, object], n: int, table: str, change: ConditionalUpdate | None, row: Row | None
) -> dict[str, Any]:
    """An entry of TransactWriteItems with DynamoDB's values, from the ``n``th of a Commit. Raises InvalidInput for a
    value that no table can hold, and for one that writes the task's own row."""
    ((kind, part),) = item.items()
    assert isinstance(part, Mapping)
    entry: dict[str, Any] = {}
    for name, value in part.items():
        field = f"items[{n}].{kind}.{name}"
        if name in _VALUES and isinstance(value, Mapping):
            entry[name] = {key: encode_value(one, f"{field}.{key}") for key, one in value.items()}
        elif name in _TEXTS and isinstance(value, str):
            entry[name] = value
        elif name == "ExpressionAttributeNames" and isinstance(value, Mapping):
            entry[name] = dict(value)
        else:
            raise InvalidInput(field, value, f"expected {', '.join((*_TEXTS, *_VALUES))} or ExpressionAttributeNames")
    try:
        orjson.dumps(entry, default=lambda value: "")  # of binaries
    except orjson.JSONEncodeError as error:
        raise InvalidInput(
            f"items[{n}].{kind}", f"a {type(part).__name__}", f"a table cannot hold it: {error}"
        ) from None
    if entry["TableName"].rpartition("/")[2] == table:
        own = {change.task_id if change is not None else None, row.get(attr.TASK_ID) if row is not None else None}
        field, given = f"items[{n}].{kind}.{KINDS[kind]}", part[KINDS[kind]].get(attr.TASK_ID)
        if not isinstance(given, str):
            expected = 'expected text: a Commit has the values of Python, as form="resource" of transact_put gives them'
            raise InvalidInput(f"{field}.{attr.TASK_ID}", given, expected)
        if given in own:
            raise InvalidInput(field, given, "leave out the task itself: it is completed")
    return {kind: entry}


def is_to_be_sent_again(error: Exception) -> bool:
    """Whether a transaction had no effect because others wrote the same rows, or for want of capacity."""
    codes = _codes(error)
    return bool(codes & _AGAIN) and "ConditionalCheckFailed" not in codes


def is_lost(error: Exception, own: int) -> bool:
    """Whether one of the first ``own`` parts has a condition that does not hold."""
    return any(reason.get("Code") == "ConditionalCheckFailed" for reason in _reasons(error)[:own])


def is_ours_too_large(error: Exception, own: int) -> bool:
    """Whether DynamoDB refuses one of the first ``own`` parts: they are well formed, so for their sizes."""
    return any(reason.get("Code") == "ValidationError" for reason in _reasons(error)[:own])


def cancelled(error: Exception, own: int, items: Sequence[Mapping[str, Any]]) -> Cancelled | None:
    """Why a transaction has surely had no effect; None: it may have one. ``items``: its parts after the first
    ``own``."""
    if not isinstance(error, ClientError):
        return None
    for n, reason in enumerate(_reasons(error)[own:]):
        code = str(reason.get("Code"))
        if code != "None":
            ((kind, part),) = items[n].items()
            text = f"items[{n}], {kind} in {part['TableName']}: {code}"
            if message := reason.get("Message"):
                text += f": {message}"
            return Cancelled(text, code in _NEVER)
    code = str(error.response.get("Error", {}).get("Code"))
    return Cancelled(str(error), code in _NEVER) if code in _REFUSED or _reasons(error) else None


def _codes(error: Exception) -> set[str]:
    own = {str(error.response.get("Error", {}).get("Code"))} if isinstance(error, ClientError) else set()
    return own | {str(reason.get("Code")) for reason in _reasons(error)}


def _reasons(error: Exception) -> Sequence[Mapping[str, Any]]:
    reasons = error.response.get("CancellationReasons", ()) if isinstance(error, ClientError) else ()
    return list(reasons)
