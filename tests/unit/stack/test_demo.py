"""The demo's verdict: of a batch that ended as it must nothing is said, and each thing that differs is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dynatick_stack.demo.batch import FAILED, REFUSED, batch, unmet

PLANNED = batch(datetime(2026, 12, 31, 11, 58, 30, tzinfo=UTC), "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: None, []),
        (lambda found: found.ended.pop("bare"), ["bare: not there '', expected completed ''"]),
        (lambda found: found.ended.update(bare=("failed", "")), ["bare: failed '', expected completed ''"]),
        (lambda found: found.ended.update(bare=("completed", "e")), ["bare: completed 'e', expected completed ''"]),
        (lambda found: found.refused.update({"refused-naive": "no"}),
         ["refused-naive: refused 'no', expected refused 'offset'"]),
        (lambda found: found.called.append("hook-gone"), ["hook-gone: 2 webhooks came, expected 1"]),
        (lambda found: found.letters.remove("hook-gone"), ["hook-gone: 0 dead letters came"]),
        (lambda found: found.letters.append("bare"), ["bare: 1 dead letters came"]),
    ],
)  # fmt: skip
def test_what_differs_is_said(change: Callable[[Any], object], said: list[str]) -> None:
    found = SimpleNamespace(
        refused={one.task_id: one.error for one in PLANNED if one.ends == REFUSED},
        ended={one.task_id: (one.ends, one.error) for one in PLANNED if one.ends != REFUSED},
        called=[one.task_id for one in PLANNED for _ in range(one.calls)],
        letters=[one.task_id for one in PLANNED if one.ends == FAILED],
    )
    change(found)
    tasks: Any = {
        task_id: SimpleNamespace(status=status, error=error) for task_id, (status, error) in found.ended.items()
    }
    assert list(unmet(PLANNED, found.refused, tasks, found.called, found.letters)) == said
