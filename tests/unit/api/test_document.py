"""The documents of the API are what the code makes of them, are whole, and are what the API answers."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import hypothesis
import pytest
import schemathesis
from jsonschema_rs import Draft202012Validator
from schemathesis import BaseSchema, Case
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.unit.api.support import Caller, Time

from dynatick.api import Api
from dynatick.api.document import document
from dynatick.api.problems import CODES
from dynatick.engine.cursor import read_cursor
from dynatick_stack.api import Application

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document()))
FORMS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def test_it_is_a_whole_document_of_openapi_3_1_and_has_every_problem() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(copy.deepcopy(DOCUMENT)).validate()
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT))):
        place: Any = DOCUMENT
        for part in reference.split("/"):
            place = place[part.replace("~1", "/").replace("~0", "~")]
    assert {code for name in DOCUMENT["components"]["responses"] for code in name.split(".")} == set(CODES)


def test_it_has_the_headers_of_a_repetition_and_of_a_refused_media_type(caller: Caller) -> None:
    for path in ("/v1/tasks", "/schedule-task"):
        answers = DOCUMENT["paths"][path]["post"]["responses"]
        assert "Idempotency-Replayed" in answers["200"]["headers"]
        assert "Idempotency-Replayed" not in answers["201"]["headers"]
    assert "Idempotency-Replayed" not in DOCUMENT["paths"]["/v1/tasks"]["get"]["responses"]["200"]["headers"]
    refused = caller.send("POST", "/v1/tasks", "{}", content_type="text/plain")
    assert refused.response["headers"]["Accept-Post"] == "application/json"
    assert "Accept-Post" in DOCUMENT["components"]["responses"]["unsupported-media-type"]["headers"]


def test_every_operation_of_the_api_is_in_it_and_no_other(caller: Caller) -> None:
    reported = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert reported == {
        (one.method, one.path.replace("<", "{").replace(">", "}")) for one in caller.api.table.operations
    }
    names = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "example"), [(name, example) for name, form in FORMS.items() for example in form.get("examples", [])]
)
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
    for path in ("cancel", "redrive", "restore", "run"):
        form = f"{path.capitalize()}Selection"
        (selection,) = FORMS[form]["examples"]
        assert caller.ask("POST", f"/v1/tasks/{path}", selection)["more"] is False


def application() -> Application:
    """An application with a task in each state, so that not all is not-found."""
    caller = Caller()
    caller.publish_settings()
    for n in range(3):
        caller.client.insert(f"welcome-4{n}", task_date_time="2026-12-31#12:00")
    caller.client.cancel("welcome-41")
    caller.dead_letters.put('{"taskId": "welcome-41", "run": 1, "failedAt": "2026-12-31T12:00:00Z"}')
    caller.dead_letters.put("no letter")
    read_cursor(caller.store, 0, caller.clock())  # as a tick leaves it: without one, the health is that of a fault
    for schedule_id in ("nightly-report", "nightly"):
        caller.client.schedules.insert(schedule_id, "cron(0 3 * * ? *)", timezone="Europe/Berlin")
    time = Time()
    return Application(caller.client, api=lambda client: Api(client, seconds=lambda: time.now, pause=time.pause))


@pytest.fixture
def schema() -> BaseSchema:
    return schemathesis.openapi.from_asgi("/openapi.json", application(), headers={"Host": "127.0.0.1"})


# What is sent to each operation takes seconds to make up: by a fixture, only the process that sends it does.
@pytest.mark.long
@schemathesis.pytest.from_fixture("schema").parametrize()
@hypothesis.settings(max_examples=6)  # make search goes on with others
def test_whatever_is_sent_is_answered_as_the_document_says(case: Case) -> None:
    # Left out: that whatever fits its form is accepted. A form can't say that one of three times may be given, that an
    # instant needs its offset, or that an action must be known.
    case.call_and_validate(base_url="http://127.0.0.1", excluded_checks=[positive_data_acceptance], timeout=60)
