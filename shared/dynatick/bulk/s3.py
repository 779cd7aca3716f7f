"""Objects in S3. Only this module of the package uses the SDK."""

from __future__ import annotations

from typing import IO, Any

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from dynatick.bulk.importer import FileGone
from dynatick.errors import StoreError

_GONE = frozenset({"PreconditionFailed", "412", "NoSuchKey", "404", "InvalidRange"})


class S3Files:
    """The Files port on S3. ``client``: boto3's client for S3."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def read(self, bucket: str, key: str, *, etag: str, start: int, size: int) -> bytes:
        try:
            answer = self._client.get_object(
                Bucket=bucket, Key=key, IfMatch=f'"{etag}"', Range=f"bytes={start}-{start + size - 1}"
            )
            return bytes(answer["Body"].read())
        except (ClientError, BotoCoreError, HTTPClientError) as error:
            if _code(error) in _GONE:
                raise FileGone(f"{key} was deleted or replaced meanwhile") from error
            raise StoreError(f"cannot read {key}: {error}") from error

    def get(self, bucket: str, key: str) -> bytes | None:
        try:
            return bytes(self._client.get_object(Bucket=bucket, Key=key)["Body"].read())
        except (ClientError, BotoCoreError, HTTPClientError) as error:
            if _code(error) in ("NoSuchKey", "404"):
                return None
            raise StoreError(f"cannot read {key}: {error}") from error

    def put(self, bucket: str, key: str, content: IO[bytes], content_type: str) -> None:
        try:
            self._client.put_object(Bucket=bucket, Key=key, Body=content, ContentType=content_type)
        except (ClientError, BotoCoreError, HTTPClientError) as error:
            raise StoreError(f"cannot write {key}: {error}") from error


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""
