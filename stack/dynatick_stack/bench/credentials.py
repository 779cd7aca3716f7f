"""Credentials for endpoints on this machine."""

from __future__ import annotations

import os


def use_test_credentials() -> None:
    """Instead of the caller's. To be called before a client is made; processes that are started later inherit them."""
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_SESSION_TOKEN="")
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
