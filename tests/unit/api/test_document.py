"""The documents of the API are what the code makes of them, and what they say is whole."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
import schemathesis
from jsonschema_rs import Draft202012Validator
from tests.unit.api.support import Caller

from dynatick.api.document import document
from dynatick.api.problems import CODES

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document()))
FORMS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def test_it_is_a_document_of_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(copy.deepcopy(DOCUMENT)).validate()


def test_whatever_it_refers_to_is_there() -> None:
    found = set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT)))
    assert found
    for reference in found:
        place: Any = DOCUMENT
        for part in reference.split("/"):
            place = place[part.replace("~1", "/").replace("~0", "~")]


def test_every_operation_of_the_api_is_in_it_and_no_other(caller: Caller) -> None:
    reported = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert reported == {
        (one.method, one.path.replace("<", "{").replace(">", "}")) for one in caller.api.table.operations
    }
    names = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


def test_every_problem_is_told_somewhere() -> None:
    assert {code for name in DOCUMENT["components"]["responses"] for code in name.split(".")} == set(CODES)


def examples() -> list[tuple[str, object]]:
    return [(name, example) for name, form in FORMS.items() for example in form.get("examples", [])]


@pytest.mark.parametrize(("name", "example"), examples(), ids=[name for name, _ in examples()])
def test_examples_fit_their_forms(name: str, example: object) -> None:
    whole = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    Draft202012Validator(whole).validate(example)


def test_the_examples_are_taken(caller: Caller) -> None:
    (task,) = FORMS["NewTask"]["examples"]
    assert caller.ask("POST", "/v1/tasks", task)["status"] == "scheduled"
    (patch,) = FORMS["TaskPatch"]["examples"]
    assert caller.ask("PATCH", f"/v1/tasks/{task['taskId']}", patch)["dueAt"] == patch["dueAt"]
    (simple,) = FORMS["ScheduleTask"]["examples"]
    assert caller.ask("POST", "/schedule-task", simple)["dueAt"] == simple["run_at"]
    for path, form in (("cancel", "CancelSelection"), ("redrive", "RedriveSelection")):
        (selection,) = FORMS[form]["examples"]
        assert caller.ask("POST", f"/v1/tasks/{path}", selection)["more"] is False
