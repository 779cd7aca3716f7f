"""Whatever happens, in whatever order: no task is lost, early, resurrected, executed after a cancel, or stuck.

More sequences, other ones each time: pytest tests/model -k memory --model-examples 5000
"""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test
from tests.model.conftest import ModelSettings, TableOf, machine_on


@pytest.mark.parametrize(
    ("fresh_table", "examples"), [("memory", 100), ("moto", 3), ("emulator", 3)], indirect=["fresh_table"]
)
def test_no_sequence_of_operations_and_faults_harms_a_task(
    fresh_table: TableOf, examples: int, model_settings: ModelSettings
) -> None:
    run_state_machine_as_test(machine_on(fresh_table), settings=model_settings(examples))
