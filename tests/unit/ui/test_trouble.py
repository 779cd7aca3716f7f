"""What the pages say when the table can't be read: what was refused, to whom, and the command that repairs it."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, UnauthorizedSSOTokenError
from pynamodb.exceptions import QueryError

from dynatick.errors import StoreError
from dynatick.ui.trouble import Access, trouble_of

ACCESS = Access(profile="team prod", region="eu-central-1", table="reminders-Tasks")
DENIED = (
    "User: arn:aws:sts::111122223333:assumed-role/ops/ada is not authorized to perform: dynamodb:Query on resource: "
    "arn:aws:dynamodb:eu-central-1:111122223333:table/reminders-Tasks/index/taskDateTime-index because no policy does"
)


def refused(code: str, message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Query")


def stored(cause: Exception) -> StoreError:
    error = StoreError(f"cannot read a bucket: {cause}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "kind", "command"),
    [
        (refused("ExpiredTokenException"), "expired", "aws sso login --profile 'team prod'"),
        (QueryError(cause=refused("ExpiredTokenException")), "expired", "aws sso login --profile 'team prod'"),
        (UnauthorizedSSOTokenError(), "expired", "aws sso login --profile 'team prod'"),
        (NoCredentialsError(), "unknown", "aws configure --profile 'team prod'"),
        (refused("UnrecognizedClientException"), "unknown", "aws configure --profile 'team prod'"),
        (refused("AccessDeniedException", DENIED), "denied",
         "aws sts get-caller-identity --profile 'team prod' --region eu-central-1"),
        (refused("ResourceNotFoundException"), "missing",
         "aws dynamodb list-tables --profile 'team prod' --region eu-central-1"),
        (refused("ThrottlingException"), "throttled",
         "aws dynamodb describe-table --table-name reminders-Tasks --profile 'team prod' --region eu-central-1"),
        (EndpointConnectionError(endpoint_url="https://x"), "unreachable",
         "aws sts get-caller-identity --profile 'team prod' --region eu-central-1"),
        (refused("InternalServerError"), "other", None),
    ],
)  # fmt: skip
def test_an_error_is_named_with_the_command_that_repairs_it(cause: Exception, kind: str, command: str | None) -> None:
    found = trouble_of(stored(cause), ACCESS)
    assert (found.kind, found.command, found.profile) == (kind, command, "team prod")
    assert found.title and found.refused and found.advice


def test_a_refusal_names_what_was_asked_for_and_who_asked() -> None:
    found = trouble_of(stored(refused("AccessDeniedException", DENIED)), ACCESS)
    assert found.refused == (
        "dynamodb:Query on arn:aws:dynamodb:eu-central-1:111122223333:table/reminders-Tasks/index/taskDateTime-index, "
        "for arn:aws:sts::111122223333:assumed-role/ops/ada"
    )
    assert "policy Read of docs/how-to/access.md" in found.advice


def test_keys_that_were_left_are_throttled_and_the_default_profile_is_named() -> None:
    found = trouble_of(StoreError("cannot read rows: 7 keys were left unprocessed 10 times"), Access())
    assert (found.kind, found.profile, found.command) == ("throttled", "default", "aws dynamodb describe-table")
