"""What is used of pynamodb and botocore without their promise. A release that changes it fails here, by its name."""

from __future__ import annotations

import ast
import inspect
import threading
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import handlers, utils
from botocore.awsrequest import AWSResponse
from botocore.session import Session
from pynamodb.connection import TableConnection
from pynamodb.expressions.operand import Path as PynamoPath
from tests.unit.store.support import response

from dynatick.store import dynamodb, sdk_internals, wire
from dynatick.store.sdk_internals import AttributeName, use_session

PACKAGE = Path(dynamodb.__file__).parents[1]
OF_OTHERS = {"_replace", "_missing_", "_exit", "_new_pool"}  # of the standard library, and of urllib3's pools
OUR_OWN = {
    "_small",
    "_large",
    "_seconds",
    "_counts",
    "_begin",
    "_cancelling",
    "_due",
    "_follows",
    "_ids",
    "_clock",
    "_completions",
}  # of another object of the class, of the client that is made asynchronous or recorded, or of the same module


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


def test_pynamodb_makes_the_client_from_the_session_that_a_thread_has() -> None:
    made: list[str] = []

    class Noted(Session):
        def create_client(self, service_name: str, *args: Any, **options: Any) -> Any:
            made.append(service_name)
            return super().create_client(service_name, *args, **options)

    connection = TableConnection("tasks", region="eu-central-1")
    use_session(connection, Noted())
    client = connection.connection.client
    assert made == ["dynamodb"]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(connection.connection.client))
    thread.start()
    thread.join()
    assert found == [client] and made == ["dynamodb"], "it serves all threads"


def test_pynamodb_asks_a_path_for_its_placeholder() -> None:
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    condition = (AttributeName("a.b[0]") == {"S": "x"}) & AttributeName("c").does_not_exist()
    assert condition.serialize(names, values) == "(#0 = :0 AND attribute_not_exists (#1))"
    assert (names, values) == ({"a.b[0]": "#0", "c": "#1"}, {":0": {"S": "x"}})
    ours, theirs = (inspect.signature(kind._serialize_value).parameters for kind in (AttributeName, PynamoPath))
    assert list(ours) == list(theirs)


def test_botocore_emits_its_events_with_what_we_read_of_them() -> None:
    client = boto3.client("dynamodb", region_name="eu-central-1")
    seen: dict[str, set[str]] = {}

    def note(event_name: str, **given: Any) -> AWSResponse | None:
        name = event_name.partition(".")[0]
        seen[name] = set(given)
        if name == "before-parse":
            assert given["operation_model"].name == "Query"
            assert (given["response_dict"]["status_code"], given["response_dict"]["body"]) == (200, b'{"Count": 7}')
            given["response_dict"]["body"] = b"{}"
            given["customized_response_dict"]["Items"] = "ours"
        return response(given["request"], b'{"Count": 7}') if name == "before-send" else None

    for name in ("before-send", "before-parse", "response-received"):
        client.meta.events.register(name, note)
    answer = client.query(TableName="tasks", KeyConditionExpression="a = b")
    assert {"request"} <= seen["before-send"]
    assert {"operation_model", "response_dict", "customized_response_dict"} <= seen["before-parse"]
    assert "response-received" in seen
    assert (answer["Items"], "Count" in answer) == ("ours", False), "ours takes the place of what it would have parsed"


def test_botocores_functions_answer_as_we_ask_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "processor")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1")
    request: dict[str, Any] = {"headers": {}}
    sdk_internals.add_recursion_detection_header(request)
    assert request["headers"] == {"X-Amzn-Trace-Id": "Root=1"}
    assert Path(sdk_internals.get_cert_path(True)).is_file()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:8080")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert (
        sdk_internals.get_environ_proxies("https://dynamodb.eu-central-1.amazonaws.com/")["https"]
        == "http://proxy:8080"
    )
    assert (sdk_internals.add_recursion_detection_header, sdk_internals.get_environ_proxies) == (
        handlers.add_recursion_detection_header, utils.get_environ_proxies
    )  # fmt: skip


def test_no_other_module_uses_what_is_private_in_a_library() -> None:
    """An attribute with an underscore, of anything but ``self`` and ``cls``; or one of two modules of botocore."""
    used: set[tuple[str, str]] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in ("botocore.handlers", "botocore.utils"):
                used.add((path.stem, node.module))
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                used.add((path.stem, node.attr))
    used = {(stem, name) for stem, name in used if name not in OF_OTHERS | OUR_OWN}
    assert used == {("sdk_internals", name) for name in ("_local", "botocore.handlers", "botocore.utils")}
    assert wire.get_cert_path is sdk_internals.get_cert_path
