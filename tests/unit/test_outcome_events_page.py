"""docs/how-to/outcome-events.md: the event is what is put, and the rules' patterns and paths fit it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dynatick.actions.outcome_events import entry_of
from dynatick.domain.ends import OutcomeEvents, ends_in
from dynatick_stack import project, template

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "outcome-events.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(EVENT,) = [json.loads(text) for language, text in BLOCKS if language == "json"]
TEMPLATES = [text for language, text in BLOCKS if language == "yaml"]


def test_the_event_is_what_a_failed_task_puts() -> None:
    detail = EVENT["detail"]
    row = {name: value for name, value in detail.items() if name not in ("id", "table")}
    running = {**row, "outcome": None, "finishedAt": None}
    (end,) = ends_in(running, {**row, "payload": {"a": 1}, "result": 1}, OutcomeEvents.FAILED)
    entry = entry_of(end, "bus", detail["table"])
    assert (entry["Source"], entry["DetailType"]) == (EVENT["source"], EVENT["detail-type"])
    assert json.loads(entry["Detail"]) == detail


def test_the_setting_is_accepted(tmp_path: Path) -> None:
    (setting,) = [text for language, text in BLOCKS if language == "toml"]
    (tmp_path / "dynatick.toml").write_text(f'[stack]\nname = "reminders"\n{setting}')
    assert project.read(tmp_path).parameters == {"OutcomeEvents": "failed"}


@pytest.mark.parametrize("text", TEMPLATES, ids=["slack", "teams"])
def test_a_rule_fits_the_event_and_its_message_is_json(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "template.yaml").write_text(text)
    of: dict[str, Any] = template.load(path)
    (rule,) = [one["Properties"] for one in of["Resources"].values() if one["Type"] == "AWS::Events::Rule"]
    assert all(EVENT[name] in wanted for name, wanted in rule["EventPattern"].items())
    (target,) = rule["Targets"]
    transformer = target["InputTransformer"]
    message = transformer["InputTemplate"]
    for name, path in transformer["InputPathsMap"].items():
        _, detail, attribute = path.split(".")
        message = message.replace(f"<{name}>", EVENT[detail][attribute])
    assert "Task reminder-4711 failed" in json.dumps(json.loads(message))
    assert set(re.findall(r"!(?:Ref|GetAtt) (\w+)", text)) <= {*of["Resources"], *of.get("Parameters", {})}
