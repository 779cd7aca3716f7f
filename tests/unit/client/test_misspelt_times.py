"""A task whose time stands under a misspelt name is refused at each interface, and never runs at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.actions.test_interfaces import Interfaces
from tests.unit.api.support import event, read
from tests.unit.bulk.test_importer import Bucket, Lambda

from dynatick import InvalidInput, Refused, cli

SOON = "2026-12-31T12:30:00Z"
NAMES = {"due_at": "dueAt", "ScheduleExpression": "scheduleExpression"}  # others: in the domain


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Interfaces:
    return Interfaces(monkeypatch, capsys, tmp_path)


@pytest.mark.parametrize(("name", "right"), NAMES.items())
def test_each_interface_refuses_it_and_gives_the_right_name(interfaces: Interfaces, name: str, right: str) -> None:
    task = {"taskId": "t", name: SOON}
    with pytest.raises(InvalidInput, match=f"^{name}: .*{right}"):
        interfaces.client.insert("t", attributes={name: SOON})
    (result,) = interfaces.client.insert_lazily([task])
    assert isinstance(result, Refused)
    assert (result.error.field, right in str(result.error)) == (name, True)

    (error,) = read(interfaces.api.handle(event("POST", "/v1/tasks", task), None))["errors"]
    assert (error["pointer"], right in error["detail"]) == (f"#/{name}", True)
    (one,) = read(interfaces.api.handle(event("POST", "/v1/tasks/bulk", {"tasks": [task]}), None))["results"]
    assert right in json.dumps(one)

    for file, text in (("t.ndjson", json.dumps(task) + "\n"), ("t.csv", f"taskId,{name}\nt,{SOON}\n")):
        path = interfaces.folder / file
        path.write_text(text, "utf-8")
        assert cli.run(["task", "import", str(path)]) != 0
        assert right in interfaces.capsys.readouterr().err
        function = Lambda(interfaces.world, Bucket())
        function.run(function.bucket.event(f"imports/{file}", text))
        (reported,) = function.bucket.errors()
        assert reported["field"] == name
    assert interfaces.world.store.get("t") is None
    row = interfaces.world.put(**task)
    assert (row["outcome"], name in str(row["error"]), right in str(row["error"])) == ("failed", True, True)
