"""The FastAPI application of docs/how-to/fastapi.md, from an empty folder, with its tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.frameworks.page import run, run_tests, write_project

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert write_project("fastapi.md", tmp_path) == {"reminders.py", "app.py", "handlers.py", "test_app.py"}
    return tmp_path


def test_the_application_of_the_page_passes_its_tests(project: Path) -> None:
    assert "2 passed" in run_tests(project)


def test_without_a_table_it_does_not_start_and_says_so(project: Path) -> None:
    code = "from app import app\nfrom fastapi.testclient import TestClient\nwith TestClient(app): pass"
    with pytest.raises(AssertionError, match="DYNATICK_TABLE"):
        run(project, "-c", code)
