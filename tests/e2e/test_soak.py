"""`make soak`, short: to its end, interrupted, and with a task that another client takes away behind its back."""

from __future__ import annotations

import json
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.e2e.programs import left, start
from tests.sandbox.history import history_of
from tests.sandbox.journal import read
from tests.soak.plan import Plan
from tests.soak.run import soak

from dynatick.domain.task import is_own_row
from dynatick_stack import deploy

pytestmark = pytest.mark.long

SOAK = "tests.soak"
MAX_WAIT_SECONDS = 600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tmp"
    made.mkdir()
    return made


def number(output: str, name: str) -> int:
    found = re.search(rf"^ *{name} +([\d,]+)", output, re.MULTILINE)
    assert found is not None, f"no line {name!r} in:\n{output}"
    return int(found[1].replace(",", ""))


def test_a_short_soak(folder: Path, tmp_path: Path) -> None:
    few = ("--processors", "2", "--inserters", "1")
    running = start(folder, SOAK, "--minutes", "0.3", "--seed", "2", *few, "--keep", str(tmp_path / "kept"))
    output, errors = running.communicate(timeout=MAX_WAIT_SECONDS)
    assert running.returncode == 0, f"{output}\n{errors}"
    assert errors == ""
    assert "SEED=2" in output
    assert number(output, "lost") == number(output, "waiting") == number(output, "problems") == 0
    inserted = number(output, "inserted")
    # How much fits into twenty seconds depends on how busy the machine is otherwise.
    assert inserted >= 10
    record_results = ("executed", "cancelled", "deleted", "replaced", "failed")
    assert sum(number(output, recorded_as) for recorded_as in record_results) == inserted
    # It was no calm: what the journal says of it, not the table.
    history = history_of(read(tmp_path / "kept" / "journal"))
    assert history.done >= 10
    assert sum(history.deaths.values()) + sum(history.faults.values()) >= 3
    assert left(folder) == []


def test_rows_that_are_taken_away_behind_its_back_turn_it_red(tmp_path: Path) -> None:
    """So its verdict does look at the real table."""
    taken: set[str] = set()
    over = threading.Event()

    def take_away() -> None:
        state = tmp_path / "local" / "state.json"
        while not over.wait(0.05):
            # At first there is no emulator, or none with a table, and at the very end none any more.
            with suppress(OSError, ValueError, ClientError, BotoCoreError):
                dynamodb = deploy.client("dynamodb", f"http://127.0.0.1:{json.loads(state.read_text())['port']}")
                (table,) = dynamodb.list_tables()["TableNames"]
                for item in dynamodb.scan(TableName=table)["Items"]:
                    task_id = item["taskId"]["S"]
                    if not is_own_row(task_id):
                        taken.add(task_id)
                        dynamodb.delete_item(TableName=table, Key={"taskId": item["taskId"]})

    thief = threading.Thread(target=take_away)
    thief.start()
    try:
        ended = soak(lambda text: None, Plan(seed=4, minutes=0.25, processors=2, inserters=1), tmp_path)
    finally:
        over.set()
        thief.join()
    missed = {problem.partition(": lost")[0] for problem in ended.verdict.problems if ": lost" in problem}
    assert missed
    ids = {life.partition("/")[0] for life in missed}  # some had replaced another under its id
    assert {task_id for task_id in ids if task_id.partition("#")[0] not in taken} <= taken  # or its schedule was
    assert not ended.verdict.is_good
    assert ended.verdict.record_results["lost"] == len(missed)
