"""`aws SERVICE OPERATION --some-option VALUE …` by boto3: the same operation with the same arguments."""

import json
import sys

import boto3
from botocore import xform_name


def value_of(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


service, operation, *options = sys.argv[1:]
client = boto3.client(service)
method = operation.replace("-", "_")
shape = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method]).input_shape
names = {"--" + xform_name(name, "-"): name for name in shape.members}
arguments = {names[option]: value_of(text) for option, text in zip(options[::2], options[1::2], strict=True)}
answer = getattr(client, method)(**arguments)
answer.pop("ResponseMetadata")
sys.stdout.write(json.dumps(answer, indent=4, default=str) + "\n")
