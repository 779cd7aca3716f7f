"""A type checker knows arguments and results of the asynchronous client and of task functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from dataclasses import dataclass
from typing import assert_type
from dynatick import AsyncTaskClient, HandlerContext, InsertCounts, ScheduleView, TaskEntry, TaskView, task

@dataclass
class Mail:
    to: str

@task("a")
def a(mail: Mail) -> int:
    return 1

@task("b")
async def b(mail: Mail, context: HandlerContext) -> str:
    return ""

async def use(client: AsyncTaskClient) -> None:
    a.schedule(Mail("x"))
    b.every("rate(1 hour)", Mail("x"))
    n: int = a(Mail("x"))
    a.schedule("x")  # wrong
    a.schedule_many([Mail("x"), 7])  # wrong
    b.every("rate(1 hour)", 7)  # wrong
    await b.schedule_async("x")  # wrong
    b("x", None)  # wrong
    m: str = a(Mail("x"))  # wrong
    a.schedule(Mail("x"), delay=60)  # wrong
    assert_type(await client.insert("a", delay_seconds=90), TaskView)
    assert_type(await client.insert_many([{"taskId": "a"}]), InsertCounts)
    assert_type(await client.schedules.get("s"), ScheduleView)
    async for entry in client.iter_history("2026-12-31#12:00"):
        assert_type(entry, TaskEntry)
    letters = client.dead_letters.redrive()
    complete: bool = letters.complete
    await client.insert("a", delay_second=90)  # wrong
    await client.insert(7)  # wrong
    await client.schedules.insert("s")  # wrong
    for found in client.iter_history("2026-12-31#12:00"):  # wrong
        pass
"""


def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    wrong = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert {int(line.split(":")[1]) for line in found.splitlines() if "error:" in line} == wrong, found
