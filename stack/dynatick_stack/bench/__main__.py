"""`python -m dynatick_stack.bench [--quick] [--dynamodb-endpoint URL]`: a table, then one line of JSON."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers, in less than a minute")
    parser.add_argument(
        "--dynamodb-endpoint",
        metavar="URL",
        help="measure on this DynamoDB endpoint instead of our own in memory; one off this machine is called with your "
        "own credentials, and charged for",
    )
    parser.add_argument("--write", metavar="FILE", type=Path, help="keep the JSON there too")
    parser.add_argument("--million", action="store_true", help="growth with 1,000,000 tasks pending, too")
    options = parser.parse_args()
    endpoint: str | None = options.dynamodb_endpoint
    if endpoint is None or urlsplit(endpoint).hostname in LOOPBACK:
        os.environ.pop("AWS_PROFILE", None)
        os.environ.update(
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_SESSION_TOKEN="",
            AWS_EC2_METADATA_DISABLED="true",
        )
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

    # The SDK looks at the environment when it is imported.
    from dynatick_stack.bench.run import FULL, QUICK, run

    sizes = QUICK if options.quick else FULL
    if options.million:
        sizes = replace(sizes, pending=(*FULL.pending, 1_000_000))
    return run(sizes, endpoint, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
