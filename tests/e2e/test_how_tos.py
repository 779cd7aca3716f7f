"""The how-tos work as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.documents import run

pytestmark = pytest.mark.long

# Those whose examples run as they stand; the others' are run, with what they leave out, by tests/unit.
HOW_TOS = [
    "assignment",
    "http-api",
    "import",
    "nightly-report",
    "reminder-by-email",
    "to-the-second",
    "unpublish-by-webhook",
]


# Each has a stack of its own, so no process need run them all.
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in HOW_TOS])
def test_the_commands_of_a_how_to_work(name: str, tmp_path: Path) -> None:
    run(f"docs/how-to/{name}.md", tmp_path)
