"""The bucket for what a deployment uploads."""

from __future__ import annotations

import base64
import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynatick_stack.errors import RefusedError
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    import boto3

_PREFIX = "dynatick"  # of the keys
_CLOSED = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")


class ArtifactBucket:
    """Methods raise BotoCoreError and ClientError as the SDK does."""

    def __init__(self, session: boto3.Session, name: str | None = None) -> None:
        """``name`` None: dynatick-ACCOUNT-REGION."""
        self._given = name
        self._session = session
        self._s3: Any = session.client("s3")
        self._sts: Any = session.client("sts")
        self._region = str(session.region_name)

    @cached_property
    def name(self) -> str:
        return self._given or f"dynatick-{self.account}-{self._region}"

    @cached_property
    def account(self) -> str:
        return str(self._sts.get_caller_identity()["Account"])

    def exists(self) -> bool:
        """Raises RefusedError for one that is another account's."""
        from botocore.exceptions import ClientError

        try:
            self._s3.head_bucket(Bucket=self.name, ExpectedBucketOwner=self.account)
        except ClientError as error:
            if _http_status(error) == 404:
                return False
            if _http_status(error) == 403:
                raise RefusedError(
                    f"The bucket {self.name} is another account's, or these credentials can't use it"
                ) from None
            raise
        return True

    def create(self) -> None:
        """A private one; S3 encrypts it by itself."""
        where = {} if self._region == "us-east-1" else {
            "CreateBucketConfiguration": {"LocationConstraint": self._region}
        }  # fmt: skip
        self._s3.create_bucket(Bucket=self.name, **where)
        self._s3.put_public_access_block(
            Bucket=self.name,
            PublicAccessBlockConfiguration=dict.fromkeys(_CLOSED, True),
            ExpectedBucketOwner=self.account,
        )

    def place(self, path: Path) -> dict[str, str]:
        """``Bucket`` and ``Key`` that a zip has once it is uploaded. It is named by its content."""
        return {"Bucket": self.name, "Key": f"{_PREFIX}/{path.name}"}

    def upload(self, path: Path, say: Say) -> dict[str, str]:
        """The zip's place. One that is there needs no upload, if S3 says that it has this content."""
        place, content = self.place(path), path.read_bytes()
        key = place["Key"]
        checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
        if self._checksum(key) != checksum:
            say(f"Uploading {path.name} ({max(1, len(content) // 1024):,} KB)")
            self._s3.put_object(
                Bucket=self.name,
                Key=key,
                Body=content,
                ChecksumAlgorithm="SHA256",
                ChecksumSHA256=checksum,
                ExpectedBucketOwner=self.account,
            )
        return place

    def _checksum(self, key: str) -> str | None:
        """The SHA-256 of an object, as S3 has computed it; None if there is none, or it was put without."""
        from botocore.exceptions import ClientError

        try:
            found = self._s3.head_object(
                Bucket=self.name, Key=key, ChecksumMode="ENABLED", ExpectedBucketOwner=self.account
            )
        except ClientError as error:
            if _http_status(error) not in (403, 404):
                raise
            return None
        checksum: str | None = found.get("ChecksumSHA256")
        return checksum

    def put(self, name: str, content: bytes) -> str:
        """Its URL."""
        key = f"{_PREFIX}/{name}"
        self._s3.put_object(Bucket=self.name, Key=key, Body=content, ExpectedBucketOwner=self.account)
        return f"{self._plain_endpoint}/{self.name}/{key}"

    @cached_property
    def _plain_endpoint(self) -> str:
        """S3's URL without the variants that the environment may ask for (AWS_USE_DUALSTACK_ENDPOINT): CloudFormation
        reads a template from a plain one only."""
        from botocore.config import Config

        plain = Config(use_dualstack_endpoint=False, use_fips_endpoint=False)
        return str(self._session.client("s3", config=plain).meta.endpoint_url)


def _http_status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
