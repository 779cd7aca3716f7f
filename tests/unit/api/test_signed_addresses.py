"""Addresses of the documentation, as curl signs them: AWS computes the signature from the canonical form."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "http-api.md"
BASE = "https://api.example.com"


def documented() -> list[str]:
    """What the calls of the shell function ``api`` ask for."""
    return [f"{BASE}{rest}" for rest in re.findall(r'"\$DYNATICK_API_URL(/[^"]*)"', PAGE.read_text(encoding="utf-8"))]


def as_written(url: str) -> tuple[str, str]:
    """The path and the query that curl signs, up to 8.2: those of the address."""
    parts = urlsplit(url)
    return parts.path, parts.query


def canonical(url: str) -> tuple[str, str]:
    """The path and the query that AWS computes the signature from: the path as the SDK has it, encoded twice; of the
    query, the SDK encodes none of an address, so that is done here as AWS documents it."""
    signer = SigV4Auth(Credentials("key", "secret"), "execute-api", "eu-central-1")
    path = signer.canonical_request(AWSRequest("GET", url, headers={"Host": "api.example.com"})).split("\n")[1]
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True)
    )
    return path, "&".join(f"{name}={value}" for name, value in pairs)


@pytest.mark.parametrize("url", sorted(set(documented())))
def test_every_documented_address_is_written_in_its_canonical_form(url: str) -> None:
    path, query = as_written(url)
    assert (path, query) == canonical(url), "curl would sign another address than AWS, which answers 403"
    # Newer versions of curl percent-encode a path once or twice: nothing is left to do for them.
    assert quote(path, safe="/~") == path


def test_the_check_finds_what_curl_signs_otherwise() -> None:
    for url in (
        f"{BASE}/v1/buckets/2026-12-31%2312:00",
        f"{BASE}/v1/tasks?start=2026-12-31T00:00:00Z",
        f"{BASE}/v1/tasks?status=scheduled&limit=2",
    ):
        assert as_written(url) != canonical(url)
    assert len(documented()) > 20
