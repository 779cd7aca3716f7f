"""Deploys template.yaml to the emulator, as `sam deploy` would to AWS.

Only the paths of code and layer are replaced by where they were uploaded; nothing else of the
template is touched. What the emulator's CloudFormation leaves out is set afterwards.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dynatick_stack import template
from dynatick_stack.cloudformation import Operation, Stack
from dynatick_stack.emulator import STACK
from dynatick_stack.errors import DeployError

REGION = "us-east-1"
BUCKET = "dynatick-artifacts"
POLL_SECONDS = 0.2


def client(service: str, endpoint: str) -> Any:
    """A boto3 client of the emulator, whatever profile and credentials the user has."""
    # Here, since the help of the command line needs no SDK, which takes a quarter of a second to import.
    import boto3
    from botocore.config import Config

    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(
            retries={"max_attempts": 3, "mode": "standard"},
            connect_timeout=5,
            # A function may run for the longest time that Lambda allows.
            read_timeout=900,
        ),
    )


def stack_at(endpoint: str, name: str = STACK) -> Stack:
    return Stack(client("cloudformation", endpoint), name, poll_seconds=POLL_SECONDS)


def deploy(
    endpoint: str,
    artifacts: Mapping[str, Path],
    parameters: Mapping[str, str],
    *,
    root: Path = template.ROOT,
    name: str = STACK,
) -> dict[str, str]:
    """Create the stack or update it; the outputs. Parameters not named keep their values."""
    from botocore.exceptions import ClientError

    body = template.load(root / template.TEMPLATE.name)
    template.check_parameters(parameters, body)
    s3 = client("s3", endpoint)
    s3.create_bucket(Bucket=BUCKET)
    for resource, path in artifacts.items():
        # The name tells the content, so a changed file is a changed template.
        s3.upload_file(str(path), BUCKET, path.name)
        template.set_code(body, resource, {"Bucket": BUCKET, "Key": path.name})
    s3.put_object(Bucket=BUCKET, Key="template.json", Body=json.dumps(body).encode())

    stack = stack_at(endpoint, name)
    existing = stack.parameters()
    operation = Operation(stack)
    request: dict[str, Any] = {
        "StackName": name,
        "ClientRequestToken": operation.token,
        "TemplateURL": f"{endpoint}/{BUCKET}/template.json",
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        "Parameters": [
            {"ParameterKey": key, "ParameterValue": value} for key, value in {**existing, **parameters}.items()
        ],
    }
    try:
        if existing:
            stack.client.update_stack(**request)
        else:
            stack.client.create_stack(**request)
    except ClientError as error:
        if "No updates are to be performed" not in str(error):
            raise DeployError(f"The stack was refused: {error}") from error
    else:
        status = operation.wait()
        if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            raise DeployError("\n".join([f"The stack could not be deployed ({status}):", *operation.reasons]))
    _allow_loops(stack, body)
    return outputs(endpoint, name)


def _allow_loops(stack: Stack, body: Mapping[str, Any]) -> None:
    """Allow loops where the template does, in a property that the emulator's CloudFormation ignores: else it ends a
    chain after 16 invocations."""
    for one in stack.resources():
        properties = body["Resources"].get(one["LogicalResourceId"], {}).get("Properties", {})
        if "RecursiveLoop" in properties:
            client("lambda", stack.client.meta.endpoint_url).put_function_recursion_config(
                FunctionName=one["PhysicalResourceId"], RecursiveLoop="Allow"
            )


def outputs(endpoint: str, name: str = STACK) -> dict[str, str]:
    """Raises NotRunningError if nothing is deployed."""
    found = stack_at(endpoint, name).outputs()
    if "ApiUrl" in found:
        # The emulator names a host that no resolver knows; it serves the same API under this path.
        api, _, _ = str(urlsplit(found["ApiUrl"]).hostname).partition(".")
        found["ApiUrl"] = f"{endpoint}/_aws/execute-api/{api}/$default"
    return found
