"""`aws SERVICE OPERATION --some-option VALUE …` by boto3: the same operation with the same arguments.

Beside it, of the AWS CLI's own commands, `s3 cp [--recursive]` and `s3api wait`.
"""

import json
import sys
from pathlib import Path

import boto3
from botocore import xform_name


def value_of(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def copy(source: str, target: str) -> None:
    s3 = boto3.client("s3")
    bucket, _, key = (target if target.startswith("s3://") else source).removeprefix("s3://").partition("/")
    if target.startswith("s3://"):
        s3.upload_file(source, bucket, key)
        return
    for one in s3.list_objects_v2(Bucket=bucket, Prefix=key)["Contents"]:
        content = s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()
        if target == "-":
            sys.stdout.write(content.decode())
            continue
        file = Path(target, one["Key"].removeprefix(key))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


service, operation, *options = sys.argv[1:]
if (service, operation) == ("s3", "cp"):
    copy(*(one for one in options if one != "--recursive"))
    sys.exit()
client = boto3.client("s3" if service == "s3api" else service)
if operation == "wait":
    waiter, *options = options
    values = dict(zip((name.lstrip("-").capitalize() for name in options[::2]), options[1::2], strict=True))
    client.get_waiter(waiter.replace("-", "_")).wait(**values, WaiterConfig={"Delay": 1, "MaxAttempts": 100})
    sys.exit()
method = operation.replace("-", "_")
shape = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method]).input_shape
names = {"--" + xform_name(name, "-"): name for name in shape.members}
arguments = {names[option]: value_of(text) for option, text in zip(options[::2], options[1::2], strict=True)}
answer = getattr(client, method)(**arguments)
answer.pop("ResponseMetadata")
sys.stdout.write(json.dumps(answer, indent=4, default=str) + "\n")
