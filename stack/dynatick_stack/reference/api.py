"""The HTTP API's reference, made from its OpenAPI document: `make docs` writes both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dynatick.api.document import document, text
from dynatick.api.problems import CODES, TYPE
from dynatick.api.routes import ALWAYS
from dynatick_stack.template import ROOT

FOLDER = ROOT / "docs" / "reference"

_HEAD = """\
# HTTP API

Made from the [OpenAPI document](openapi.json) by `make docs`. A newcomer's path is in
[how to use the HTTP API](../how-to/http-api.md); how callers are authorised, too.

Bodies and answers are JSON in UTF-8, sent as `application/json`. An attribute means the same as in the table; times are
RFC 3339 with an offset, epoch seconds, or a bucket's name. Each answer has an `X-Request-Id`.
"""


def files() -> Mapping[Path, str]:
    """What is committed, by its place."""
    return {FOLDER / "openapi.json": text(), FOLDER / "api.md": markdown(document())}


def markdown(made: Mapping[str, Any]) -> str:
    """The document for people."""
    return "\n".join([_HEAD, *_operations(made), *_forms(made), *_problems()]) + "\n"


def _operations(made: Mapping[str, Any]) -> Iterator[str]:
    yield "## Operations\n"
    yield "| | |\n|---|---|"
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            title = f"{method.upper()} {path}"
            yield f"| [`{title}`](#{_anchor(title)}) | {operation['summary']} |"
    yield ""
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            yield f"### {method.upper()} {path}\n"
            yield ". ".join(part for part in (operation["summary"], operation.get("description")) if part) + _dot(
                operation
            )
            yield ""
            yield from _inputs(operation)
            yield from _answers(operation)


def _inputs(operation: Mapping[str, Any]) -> Iterator[str]:
    parameters = operation.get("parameters", [])
    if parameters:
        yield "| Parameter | In | Type | |\n|---|---|---|---|"
        for one in parameters:
            words = _cell(one.get("description", "")) + ("" if one["required"] else _default(one["schema"]))
            yield f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {words} |"
        yield ""
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        yield f"Body: {_type(schema)}\n"


def _answers(operation: Mapping[str, Any]) -> Iterator[str]:
    refused = []
    for status, answer in operation["responses"].items():
        if "$ref" in answer:
            codes = answer["$ref"].rpartition("/")[2].split(".")
            refused += [f"{status} `{code}`" for code in codes if code not in ALWAYS]
        else:
            form = f": {_type(answer['content']['application/json']['schema'])}" if answer.get("content") else ""
            headers = [f"`{name}`" for name in answer["headers"] if name != "X-Request-Id"]
            more = f", with {', '.join(headers)}" if headers else ""
            yield f"- **{status}** {answer['description']}{form}{more}"
    if refused:
        yield f"- Problems: {', '.join(refused)}"
    yield ""


def _forms(made: Mapping[str, Any]) -> Iterator[str]:
    yield "## Forms\n"
    for name, schema in made["components"]["schemas"].items():
        yield f"### {name}\n"
        if schema.get("description"):
            yield " ".join(schema["description"].split()) + "\n"
        needed = schema.get("required", [])
        if schema.get("properties"):
            yield "| Attribute | Type | |\n|---|---|---|"
            for attribute, value in schema["properties"].items():
                must = "Required. " if attribute in needed else ""
                default = "" if attribute in needed else _default(value)
                yield f"| `{attribute}` | {_type(value)} | {must}{_cell(value.get('description', ''))}{default} |"
            yield ""
        for example in schema.get("examples", [])[:1]:
            yield f"```json\n{json.dumps(example, indent=2, ensure_ascii=False)}\n```\n"


def _problems() -> Iterator[str]:
    yield "## Problems\n"
    yield (
        "Whatever is wrong is told as `application/problem+json` (RFC 9457): `type` is "
        f"`{TYPE}` and the code, `detail` says what is wrong here,\n`errors` names each value by its place "
        "(`pointer` in the body, or `parameter`), `requestId` stands in the logs.\n"
    )
    always = ", ".join(f"`{code}`" for code in ALWAYS)
    yield f"Beside those that are named with an operation, any request may meet {always}.\n"
    yield "| Status | `code` | |\n|---|---|---|"
    for code, (status, words) in CODES.items():
        yield f"| {status} | `{code}` | {words} |"
    yield (
        "\nThe gateway itself answers 401 and 403 (not authorised), 413 (too large for it), 429 (too many requests) "
        "and 503\n(the function was not reached), with a JSON object that has only `message`."
    )


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        place = schema["$ref"].removeprefix("#/components/schemas/")
        name = place.partition("/")[0] if "/$defs/" not in place else place.rpartition("/")[2]
        return f"[{name}](#{_anchor(place.partition('/')[0])})"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    for many in ("anyOf", "oneOf"):
        if many in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[many] if one != {"type": "null"}))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    limits = [
        f"{words} {schema[name]}"
        for name, words in (("minimum", "from"), ("maximum", "to"), ("minLength", "from"), ("maxLength", "to"))
        if name in schema
    ]
    unit = " characters" if "maxLength" in schema else ""
    return f"{kind} {' '.join(limits)}{unit}" if limits else str(kind)


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value in (None, {}, []) else f" Default: `{json.dumps(value)}`."


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def _dot(operation: Mapping[str, Any]) -> str:
    return "" if operation.get("description") else "."


def _anchor(title: str) -> str:
    """As GitHub makes them."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
