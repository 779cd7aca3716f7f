"""What the pages say when the table can't be read: what was refused, to whom, and the command that repairs it."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, UnauthorizedSSOTokenError
from pynamodb.exceptions import QueryError

from dynatick.errors import StoreError
from dynatick.ui.trouble import Access, SignIn, sign_in_of, trouble_of

SIGN_IN = SignIn(command="aws sso login --profile 'team prod'", advice="Sign in again.")
ACCESS = Access(profile="team prod", region="eu-central-1", table="reminders-Tasks", sign_in=SIGN_IN)
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


PROFILES = {
    "default": {"aws_access_key_id": "AKIA", "aws_secret_access_key": "s"},
    "team prod": {"sso_session": "corp", "sso_role_name": "ops"},
    "old": {"sso_start_url": "https://corp.awsapps.com/start"},
    "signed": {"login_session": "arn:aws:iam::111122223333:user/ada"},
    "tool": {"credential_process": "/opt/tools/broker --secret hunter2"},
    "odd": {"credential_process": "broker 'x"},
    "role": {"role_arn": "arn:aws:iam::111122223333:role/ops", "source_profile": "team prod"},
    "itself": {"role_arn": "arn:aws:iam::111122223333:role/ops", "source_profile": "itself", "aws_access_key_id": "A"},
    "keys": {"aws_access_key_id": "ASIA", "aws_session_token": "t"},
    "instance": {"role_arn": "arn:aws:iam::111122223333:role/ops", "credential_source": "Ec2InstanceMetadata"},
}


@pytest.mark.parametrize(
    ("profile", "command", "advice"),
    [
        ("team prod", "aws sso login --profile 'team prod'", "Sign in again; the pages go on by themselves."),
        ("old", "aws sso login --profile old", "Sign in again"),
        ("signed", "aws login --profile signed", "Sign in again"),
        ("role", "aws sso login --profile 'team prod'", "Sign in again"),
        ("itself", "aws configure --profile itself", "Get new keys"),
        ("tool", None, "/opt/tools/broker gives them (credential_process): sign in to it; the pages go on"),
        ("odd", None, "A program gives them (credential_process)"),
        ("keys", "aws configure --profile keys", "Get new keys and enter them, then start dynatick ui again."),
        ("instance", None, "Renew them, then start dynatick ui again."),
        ("none", None, "Renew them"),
        (None, "aws configure", "Get new keys"),
    ],
)
def test_what_renews_credentials_depends_on_how_the_profile_gets_them(
    profile: str | None, command: str | None, advice: str
) -> None:
    found = sign_in_of(PROFILES, profile, {"AWS_PROFILE": "default"})
    assert found.command == command
    assert found.advice.startswith(advice)
    assert "hunter2" not in found.advice


def test_keys_of_the_environment_come_before_all_but_a_profile_of_the_command_line() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "ASIA", "AWS_PROFILE": "team prod"}
    found = sign_in_of(PROFILES, None, keys)
    assert found.command is None and "AWS_ACCESS_KEY_ID" in found.advice
    assert sign_in_of(PROFILES, "team prod", keys).command == "aws sso login --profile 'team prod'"
