"""A Celery project from an empty folder: that of docs/how-to/celery.md, and one with a real worker and a real beat."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.frameworks.page import run_tests, write_project

pytestmark = pytest.mark.long

PAGE = "celery.md"
# The broker is a folder, and so is the result backend: no server is needed.
CONFIGURATION = """
from pathlib import Path

_folder = Path({at!r})
for _name in ("messages", "processed", "control", "results"):
    (_folder / _name).mkdir(parents=True, exist_ok=True)
broker_url = "filesystem://"
broker_transport_options = {{
    "data_folder_in": str(_folder / "messages"),
    "data_folder_out": str(_folder / "messages"),
    "processed_folder": str(_folder / "processed"),
    "control_folder": str(_folder / "control"),
    "polling_interval": 0.1,
}}
result_backend = "file://" + str(_folder / "results")
"""


def project(folder: Path, at: Path) -> None:
    """``at``: the broker's folder."""
    assert write_project(PAGE, folder) == {"shop.py", "celeryconfig.py", "handlers.py", "test_shop.py"}
    shown = (folder / "celeryconfig.py").read_text(encoding="utf-8")
    assert 'broker_url = "sqs://"\n' in shown
    own = CONFIGURATION.format(at=str(at)) + shown.replace('broker_url = "sqs://"\n', "")
    (folder / "celeryconfig.py").write_text(own, encoding="utf-8")


def test_the_project_of_the_page_passes_its_tests(tmp_path: Path) -> None:
    project(tmp_path, tmp_path / "broker")
    assert "1 passed" in run_tests(tmp_path)


def test_a_worker_gets_what_was_due_later(tmp_path: Path) -> None:
    project(tmp_path, tmp_path / "broker")
    shutil.copy(Path(__file__).with_name("celery_worker.py"), tmp_path)
    assert " passed" in run_tests(tmp_path, "celery_worker.py")
