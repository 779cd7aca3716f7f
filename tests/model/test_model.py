"""Whatever happens, in whatever order: no task is lost, early, resurrected, executed after a cancel, or stuck.

The same sequences each time. Others, and more of them: ``make model EXAMPLES=5000``.
"""

from __future__ import annotations

import pytest
from tests.model.kept_faults import KEPT
from tests.model.search import search, smaller, text_of
from tests.model.steps import Found, play
from tests.model.tables import TableOf, in_memory, machine_on


def test_no_sequence_of_operations_and_faults_harms_a_task(
    fresh_table: TableOf, examples: int, start: int | None
) -> None:
    found = search(fresh_table, examples, start=start)
    if found is not None:
        pytest.fail(f"{found.says}\nTo be kept in tests/model/kept_faults.py:\n{text_of(smaller(found, fresh_table))}")


@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_once_does_no_harm_any_more(name: str) -> None:
    found: Found = KEPT[name]
    assert play(machine_on(in_memory), found.steps) == ""
