"""`curl`, as far as documents use it, for machines without one that can sign (7.76 and later can)."""

import argparse
import os
import sys

import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

parser = argparse.ArgumentParser(prog="curl")
parser.add_argument("url")
for flag in ("--silent", "--show-error", "--fail-with-body", "--include"):
    parser.add_argument(flag, action="store_true")
for option in ("--aws-sigv4", "--user", "--request", "--data", "--write-out"):
    parser.add_argument(option)
parser.add_argument("--header", action="append", default=[])
given = parser.parse_args()

headers = dict(one.split(": ", 1) for one in given.header)
body = given.data.encode() if given.data is not None else None
request = AWSRequest(given.request or ("GET" if body is None else "POST"), given.url, data=body, headers=headers)
if given.aws_sigv4:
    _, _, region, service = given.aws_sigv4.split(":")
    SigV4Auth(Credentials(*given.user.split(":", 1)), service, region).add_auth(request)
# curl waits as long as it takes; urllib3's function, without a timeout, three seconds.
more = {"retries": False, "timeout": None}
answer = urllib3.request(request.method, given.url, body=body, headers=dict(request.headers), **more)
if given.include:
    for name, value in answer.headers.items():
        sys.stdout.write(f"{name}: {value}\r\n")
    sys.stdout.write("\r\n")
sys.stdout.write(answer.data.decode() + (given.write_out or "").replace("\\n", os.linesep))
sys.exit(22 if answer.status >= 400 and given.fail_with_body else 0)
