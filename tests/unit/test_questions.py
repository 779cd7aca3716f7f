"""docs/questions.md: its recipes do what they are there for."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dynatick import TaskClient
from dynatick.testing import VirtualInstallation

TEXT = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")
SPREAD, AFTER, FIRST = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
WORDS = """debounce, rate limit, batch, callback, chain, long job, Slack, Grafana, OpenTelemetry, cost, upgrade,
multi-tenant, staging, rollback, priority, unique jobs, DLQ, cron, mutex, webhook, ETA, outbox"""
START = datetime(2027, 1, 1, 9, tzinfo=UTC)


def handlers(text: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("handlers_of_questions")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(text, vars(module))
    return module


@pytest.mark.parametrize("word", re.split(r",\s", WORDS))
def test_what_people_call_it_leads_to_a_page(word: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)
    (found,) = [answer for names, answer in rows if word in names.split(", ")]
    assert "](" in found, found  # where the links lead to, test_documents.py looks


def test_many_are_spread_and_the_same_call_again_inserts_none(capsys: pytest.CaptureFixture[str]) -> None:
    with VirtualInstallation(None, start=START - timedelta(days=1)) as installation:
        names = {"client": installation.client, "addresses": [f"{n}@example.com" for n in range(120)], "start": START}
        installation.client._settings_cache._check_actions = False
        for said in ("120 inserted", "120 exists"):
            exec(SPREAD, dict(names))
            assert capsys.readouterr().out.strip() == said
        counts = installation.client.bucket_counts(start=START, end=START + timedelta(hours=2))
        assert [one.total for one in counts] == [1] * 120, "one a minute"


def test_b_comes_after_a_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = handlers(AFTER, monkeypatch)
    with VirtualInstallation(module, start=START) as installation:
        module.charge.schedule(module.Order(7), task_id="charge-7")
        installation.advance(timedelta(minutes=2))
        key = installation.executed_of("send-receipt")[0].task_id.removeprefix("receipt-")
        module.charge(module.Order(7), SimpleNamespace(idempotency_key=key))  # again, since its record was lost
        installation.advance(timedelta(minutes=2))
    assert capsys.readouterr().out.splitlines() == ["charged order 7", "receipt of order 7", "charged order 7"]


def test_the_first_request_is_timed_beside_the_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with VirtualInstallation(None, start=START) as installation:
        monkeypatch.setattr(TaskClient, "connect", lambda: installation.client)
        exec(FIRST, {})
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["first", "second"]
