"""Signature Version 4 of the store's hot requests: all of them are a POST of JSON to the root of one endpoint.

botocore's ``SigV4Auth`` signs any request, so it takes each one apart again; that is a good part of what a batch costs.
For the one form that ours have, what it comes to is written out here. A test holds it to botocore's, to the letter; and
a request that were signed wrongly would be refused and then made by the client (wire.py).
"""

from __future__ import annotations

import hmac
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlsplit

from botocore.credentials import ReadOnlyCredentials

ALGORITHM = "AWS4-HMAC-SHA256"
CONTENT_TYPE = "application/x-amz-json-1.0"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def signed_headers(
    host: str, region: str, service: str, credentials: ReadOnlyCredentials, *, target: str, body: bytes, now: datetime
) -> dict[str, str]:
    """The headers of a request to ``https://{host}/``, signed. ``target``: version and operation; ``now`` in UTC."""
    at = now.strftime("%Y%m%dT%H%M%SZ")
    token = credentials.token
    names = f"content-type;host;x-amz-date{';x-amz-security-token' if token else ''};x-amz-target"
    canonical = (
        f"POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{host}\nx-amz-date:{at}\n"
        + (f"x-amz-security-token:{token}\n" if token else "")
        + f"x-amz-target:{target}\n\n{names}\n{sha256(body).hexdigest()}"
    )
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    to_sign = f"{ALGORITHM}\n{at}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(_key(credentials.secret_key, scope), to_sign.encode(), "sha256").hex()
    headers = {
        "Content-Type": CONTENT_TYPE,
        "Host": host,
        "X-Amz-Date": at,
        "X-Amz-Target": target,
        "Authorization": f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}",
    }
    if token:
        headers["X-Amz-Security-Token"] = token
    return headers


def host_of(url: str) -> str:
    """What the header Host says for an address: in small letters, with the port if that is not its scheme's."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


@lru_cache(maxsize=4)
def _key(secret: str, scope: str) -> bytes:
    """Good for a day."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
