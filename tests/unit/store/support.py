"""Answers of DynamoDB as botocore reads them."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse


class _Raw(BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def response(
    request: AWSPreparedRequest, body: bytes, status: int = 200, kind: str = "application/x-amz-json-1.0"
) -> AWSResponse:
    headers: Any = {"Content-Type": kind}
    return AWSResponse(request.url, status, headers, _Raw(body))
