"""Deploys template.yaml to the emulator, as `sam deploy` would to AWS.

Only the paths of code and layer are replaced by where they were uploaded; nothing else of the
template is touched. What the emulator's CloudFormation leaves out is set afterwards.
"""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dynatick_stack import template
from dynatick_stack.emulator import STACK
from dynatick_stack.errors import DeployError, RefusedError, StackError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

REGION = "us-east-1"
BUCKET = "dynatick-artifacts"

# How each type of resource names the place of its code.
PLACES = {
    "AWS::Serverless::Function": ("CodeUri", "Bucket", "Key"),
    "AWS::Serverless::LayerVersion": ("ContentUri", "Bucket", "Key"),
}


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


def deploy(
    endpoint: str,
    artifacts: Mapping[str, Path],
    parameters: Mapping[str, str],
    *,
    root: Path = template.ROOT,
    stack: str = STACK,
) -> dict[str, str]:
    """Create the stack or update it; the outputs. Parameters not named keep their values."""
    from botocore.exceptions import ClientError, WaiterError

    body = template.load(root / template.TEMPLATE.name)
    check_parameters(parameters, body)
    s3 = client("s3", endpoint)
    s3.create_bucket(Bucket=BUCKET)
    for name, path in artifacts.items():
        place, bucket, key = PLACES[body["Resources"][name]["Type"]]
        # The name tells the content, so a changed file is a changed template.
        s3.upload_file(str(path), BUCKET, path.name)
        body["Resources"][name]["Properties"][place] = {bucket: BUCKET, key: path.name}
    s3.put_object(Bucket=BUCKET, Key="template.json", Body=json.dumps(body).encode())

    cloudformation: CloudFormationClient = client("cloudformation", endpoint)
    existing = _parameters(cloudformation, stack)
    request: dict[str, Any] = {
        "StackName": stack,
        "TemplateURL": f"{endpoint}/{BUCKET}/template.json",
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        "Parameters": [
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in {**(existing or {}), **parameters}.items()
        ],
    }
    since = time.time()
    try:
        if existing is None:
            cloudformation.create_stack(**request)
            _wait(cloudformation, "stack_create_complete", stack)
        else:
            cloudformation.update_stack(**request)
            _wait(cloudformation, "stack_update_complete", stack)
    except ClientError as error:
        if "No updates are to be performed" not in str(error):
            raise DeployError(f"The stack was refused: {error}") from error
    except WaiterError as error:
        raise DeployError(_why(cloudformation, since, stack)) from error
    _allow_loops(endpoint, body, stack)
    return outputs(endpoint, stack)


def _allow_loops(endpoint: str, body: Mapping[str, Any], stack: str) -> None:
    """Set RecursiveLoop, which the emulator's CloudFormation ignores: else it ends a chain after 16 invocations."""
    resources = client("cloudformation", endpoint).describe_stack_resources(StackName=stack)["StackResources"]
    for one in resources:
        properties = body["Resources"].get(one["LogicalResourceId"], {}).get("Properties", {})
        if "RecursiveLoop" in properties:
            client("lambda", endpoint).put_function_recursion_config(
                FunctionName=one["PhysicalResourceId"], RecursiveLoop=properties["RecursiveLoop"]
            )


def outputs(endpoint: str, stack: str = STACK) -> dict[str, str]:
    deployed = _stack(client("cloudformation", endpoint), stack)
    if deployed is None:
        raise StackError(f"Nothing is deployed on {endpoint}")
    found = {one["OutputKey"]: one["OutputValue"] for one in deployed.get("Outputs", [])}
    if "ApiUrl" in found:
        # The emulator names a host that no resolver knows; it serves the same API under this path.
        api, _, _ = str(urlsplit(found["ApiUrl"]).hostname).partition(".")
        found["ApiUrl"] = f"{endpoint}/_aws/execute-api/{api}/$default"
    return found


def parameters_in_force(endpoint: str, stack: str = STACK) -> dict[str, str]:
    return _parameters(client("cloudformation", endpoint), stack) or {}


def check_parameters(parameters: Mapping[str, str], body: Mapping[str, Any]) -> None:
    """Refuse what the template would, before anything is started. The emulator doesn't check all of it."""
    known = body["Parameters"]
    for name, value in parameters.items():
        if name not in known:
            raise RefusedError(f"There is no parameter {name}. Known: {', '.join(sorted(known))}")
        if problem := _problem(value, known[name]):
            raise RefusedError(f"{name} can't be {value}. {problem}")


def _problem(value: str, spec: Mapping[str, Any]) -> str | None:
    allowed = [str(one) for one in spec.get("AllowedValues", [])]
    if allowed and value not in allowed:
        return f"Allowed: {', '.join(allowed)}"
    if "MinValue" in spec and not (value.isdecimal() and spec["MinValue"] <= int(value) <= spec["MaxValue"]):
        return f"Allowed: {spec['MinValue']} to {spec['MaxValue']}"
    if "AllowedPattern" in spec and not re.fullmatch(spec["AllowedPattern"], value):
        return str(spec["Description"])
    return None


def _stack(cloudformation: "CloudFormationClient", stack: str) -> Any | None:
    from botocore.exceptions import ClientError

    try:
        return cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise


def _parameters(cloudformation: "CloudFormationClient", stack: str) -> dict[str, str] | None:
    deployed = _stack(cloudformation, stack)
    if deployed is None:
        return None
    return {one["ParameterKey"]: one["ParameterValue"] for one in deployed.get("Parameters", [])}


def _wait(cloudformation: "CloudFormationClient", waiter: Any, stack: str) -> None:
    cloudformation.get_waiter(waiter).wait(StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 180})


def _why(cloudformation: "CloudFormationClient", since: float, stack: str) -> str:
    """The failed events, first one first: the others mostly follow from it."""
    events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
    failed = [
        f"  {one['LogicalResourceId']}: {one.get('ResourceStatusReason', 'no reason given')}"
        for one in reversed(events)
        if one["ResourceStatus"].endswith("_FAILED") and one["Timestamp"].timestamp() >= since - 1
    ]
    return "\n".join(["The stack could not be deployed:", *failed])
