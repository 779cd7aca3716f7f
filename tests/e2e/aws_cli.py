"""`aws SERVICE OPERATION --some-option VALUE …` by boto3: the same operation with the same arguments.

Of what the AWS CLI has beside that, there are `--query … --output text`, `fileb://` for a file's bytes, `s3 cp
[--recursive]` and `s3api wait`.
"""

import json
import sys
from pathlib import Path

import boto3
import jmespath
from botocore import xform_name


def value_of(text: str) -> object:
    if text.startswith("fileb://"):
        return Path(text.removeprefix("fileb://")).read_bytes()
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


def is_text(name: str) -> bool:
    """Returns whether the operation takes a text there: one that looks like JSON, such as a policy, stays one."""
    return bool(shape.members[name].type_name == "string")


given = dict(zip(options[::2], options[1::2], strict=True))
given.pop("--endpoint-url", None)  # which the environment names as well
code = given.pop("--zip-file", None)  # an option of the CLI's own, within an argument
query, output = given.pop("--query", None), given.pop("--output", "json")
names = {"--" + xform_name(name, "-"): name for name in shape.members}
names["--notification-endpoint"] = "Endpoint"  # as the CLI calls it: --endpoint is too near to an option of its own
arguments = {names[option]: text if is_text(names[option]) else value_of(text) for option, text in given.items()}
if code is not None:
    arguments["Code"] = {"ZipFile": value_of(code)}
answer = getattr(client, method)(**arguments)
answer.pop("ResponseMetadata")
if query is not None:
    answer = jmespath.search(query, answer)
if output == "text":
    sys.stdout.write(f"{answer}\n")
    sys.exit()
sys.stdout.write(json.dumps(answer, indent=4, default=str) + "\n")
