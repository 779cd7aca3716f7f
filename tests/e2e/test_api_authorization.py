"""Who may call the HTTP API: the template's parameters decide, and none of them opens it by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from tests.e2e.support import DeployedStack, deployed
from tests.e2e.test_http_api import SIGNED

from dynatick_stack.errors import DeployError

pytestmark = pytest.mark.long

TOKENS = {"ApiAuthorization": "JWT", "ApiJwtIssuer": "https://id.example.com/", "ApiJwtAudience": "tasks,reports"}
UNSIGNED: dict[str, str] = {}
MAX_WAIT_SECONDS = 60.0  # the function behind it may have to start, on a machine that starts many
A_TOKEN = {"Authorization": "Bearer e30.e30.e30"}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedStack]:
    with deployed(tmp_path_factory.mktemp("own") / "local") as world:
        yield world


def status(own: DeployedStack, headers: dict[str, str]) -> int:
    url = f"{own.stack.outputs['ApiUrl']}/v1/ticks"
    answer: Any = urllib3.request("GET", url, headers=headers, retries=False, timeout=MAX_WAIT_SECONDS)
    return int(answer.status)


def test_open_only_if_it_is_for_everybody(own: DeployedStack) -> None:
    assert (status(own, UNSIGNED), status(own, SIGNED)) == (403, 200)
    own.stack.redeploy(ApiAuthorization="EVERYBODY")
    try:
        assert status(own, UNSIGNED) == 200
    finally:
        own.stack.redeploy(ApiAuthorization="IAM")
    assert status(own, UNSIGNED) == 403


def test_tokens_of_one_issuer(own: DeployedStack) -> None:
    """The emulator can't verify a signature, so it lets no token pass. Its configuration is read back."""
    with pytest.raises(DeployError, match="needs ApiJwtIssuer"):
        own.stack.redeploy(ApiAuthorization="JWT")
    own.stack.redeploy(**TOKENS)
    try:
        assert [status(own, one) for one in (UNSIGNED, SIGNED, A_TOKEN)] == [401, 401, 401]
        gateway = own.stack.client("apigatewayv2")
        (api,) = gateway.get_apis()["Items"]
        (authorizer,) = gateway.get_authorizers(ApiId=api["ApiId"])["Items"]
        assert authorizer["IdentitySource"] == ["$request.header.Authorization"]
        assert authorizer["JwtConfiguration"] == {"Issuer": TOKENS["ApiJwtIssuer"], "Audience": ["tasks", "reports"]}
        (route,) = gateway.get_routes(ApiId=api["ApiId"])["Items"]
        assert (route["AuthorizationType"], route["AuthorizerId"]) == ("JWT", authorizer["AuthorizerId"])
    finally:
        own.stack.redeploy(ApiAuthorization="IAM")
    assert (status(own, UNSIGNED), status(own, SIGNED)) == (403, 200)
