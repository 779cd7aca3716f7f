"""The signature of the store's hot requests is botocore's, to the letter."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import patch

import pytest
from botocore.auth import SigV4Auth, _host_from_url
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dynatick.store.signing import CONTENT_TYPE, host_of, signed_headers

URLS = [
    "https://dynamodb.eu-west-1.amazonaws.com/",
    "https://DynamoDB.us-east-1.Amazonaws.com:443/",
    "https://123456789012.ddb.eu-central-1.amazonaws.com/",
    "http://127.0.0.1:4566/",
    "http://localhost:80/",
    "http://localhost:443/",
    "http://[::1]:8000/",
]

secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@settings(deadline=None)
@given(
    url=st.sampled_from(URLS),
    region=st.sampled_from(["us-east-1", "eu-west-1"]),
    secret=secrets,
    token=st.none() | secrets,
    operation=st.sampled_from(["BatchExecuteStatement", "Query"]),
    body=st.binary(min_size=1, max_size=50),
    now=st.integers(946_684_800, 4_070_908_800).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)
@example(  # the same secret on another day, in another region
    url=URLS[0],
    region="eu-west-1",
    secret="secret",
    token="token",
    operation="Query",
    body=b"{}",
    now=datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC),
)
@example(
    url=URLS[0],
    region="us-east-1",
    secret="secret",
    token=None,
    operation="Query",
    body=b"{}",
    now=datetime(2027, 1, 1, tzinfo=UTC),
)
def test_it_is_what_botocore_signs(
    url: str, region: str, secret: str, token: str | None, operation: str, body: bytes, now: datetime
) -> None:
    credentials = ReadOnlyCredentials("AKID", secret, token)
    target = f"DynamoDB_20120810.{operation}"
    ours = signed_headers(host_of(url), region, "dynamodb", credentials, target=target, body=body, now=now)

    theirs = AWSRequest("POST", url, headers={"Content-Type": CONTENT_TYPE, "X-Amz-Target": target}, data=body)
    with patch("botocore.auth.get_current_datetime", return_value=now):
        SigV4Auth(credentials, "dynamodb", region).add_auth(theirs)

    assert ours.pop("Host") == _host_from_url(url)
    assert ours == dict(theirs.headers.items())


@pytest.mark.parametrize("part", ["secret", "token", "region", "body", "now", "target", "host"])
def test_it_changes_with_everything_that_it_vouches_for(part: str) -> None:
    def signature(changed: str = "") -> str:
        def value(name: str) -> str:
            return f"another-{name}" if name == changed else name

        now = datetime(2026, 12, 31, 12, 0, changed == "now", tzinfo=UTC)
        credentials = ReadOnlyCredentials("AKID", value("secret"), value("token"))
        headers = signed_headers(
            value("host"),
            value("region"),
            "dynamodb",
            credentials,
            target=value("target"),
            body=value("body").encode(),
            now=now,
        )
        return headers["Authorization"].rpartition("Signature=")[2]

    assert signature() == signature()
    assert signature(part) != signature()
