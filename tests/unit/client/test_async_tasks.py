"""``AsyncTaskClient``: all of ``TaskClient``, awaited, while the event loop goes on, and known to a type checker."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.builders import InProcess
from tests.unit.client.support import examples, page

from dynatick import AsyncTaskClient, InvalidInput, Status, TaskClient, TaskExists, TaskNotFound
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.client import Batches, DeadLetters, Schedules, async_tasks
from dynatick.client.async_operations import AsyncOperations
from dynatick.client.async_tasks import AsyncBatches, AsyncDeadLetters, AsyncSchedules, handled, iterated
from dynatick.client.dead_letters import HandledLetters
from dynatick.client.operations import Operations
from dynatick.errors import ConfigurationError, WaitTimedOut

ROOT = Path(__file__).parents[3]
SOON = 60  # seconds: less, and a busy machine may take it


@pytest.fixture(autouse=True)
def ticks(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of sleeping, the next tick comes."""

    async def next_tick(seconds: float) -> None:
        world.next_tick()

    monkeypatch.setattr(async_tasks.asyncio, "sleep", next_tick)


def public(of: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(of, name) for name in dir(of) if not name.startswith("_")}


def parameters(function: Any) -> list[inspect.Parameter]:
    """Without ``self``, and without the function that waits by blocking."""
    found = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return [one for one in found if one.name not in ("self", "cls", "pause")]


@pytest.mark.parametrize(
    ("of", "awaited", "more"),
    [
        (TaskClient, AsyncTaskClient, {"aclose"}),
        (Schedules, AsyncSchedules, set()),
        (DeadLetters, AsyncDeadLetters, set()),
        (Operations, AsyncOperations, set()),
        (Batches, AsyncBatches, set()),
    ],
)
def test_it_has_each_method_with_the_same_arguments(of: type, awaited: type, more: set[str]) -> None:
    wanted, found = public(of), public(awaited)
    assert found.keys() == wanted.keys() | more
    for name, one in wanted.items():
        if isinstance(one, property):
            assert isinstance(found[name], property), name
            continue
        assert parameters(found[name]) == parameters(one), name
        if name == "connect":
            continue
        iterates = str(one.__annotations__["return"]).startswith(("Iterator[", "HandledLetters"))
        assert inspect.iscoroutinefunction(found[name]) is not iterates, name


def run(client: TaskClient, use: Callable[[AsyncTaskClient], Awaitable[Any]], **options: int) -> Any:
    async def main() -> Any:
        async with AsyncTaskClient(client, **options) as tasks:
            return await use(tasks)

    return asyncio.run(main())


def test_calls_do_what_those_of_the_client_do(client: TaskClient) -> None:
    with pytest.raises(ConfigurationError, match="DYNATICK_DEAD_LETTER_QUEUE_URL: it is not set"):
        _ = AsyncTaskClient(client).dead_letters
    client.dead_letter_queue = MemoryDeadLetterQueue()

    async def use(tasks: AsyncTaskClient) -> None:
        await tasks.insert("t", delay_seconds=30, action="log")
        with pytest.raises(TaskExists):
            await tasks.insert("t")
        assert (await tasks.get("t")).status is Status.SCHEDULED
        assert (await tasks.wait("t")).status is Status.COMPLETED
        assert (await tasks.insert_many([{"taskId": f"n-{n}"} for n in range(40)])).inserted == 40
        with pytest.raises(TaskNotFound):
            await tasks.cancel("x")
        await tasks.schedules.insert("s", "rate(1 hour)", action="log")
        assert [one["taskId"] async for one in tasks.schedules.export()] == ["s"]
        assert await tasks.dead_letters.count() == 0
        letters = tasks.dead_letters.purge()
        assert letters.complete is False, "it has not begun"
        assert [one async for one in letters] == []
        assert letters.complete is True

    run(client, use)


def test_results_are_fetched_as_they_are_asked_for(client: TaskClient) -> None:
    begun: list[int] = []

    async def use(tasks: AsyncTaskClient) -> None:
        results = tasks.insert_lazily({"taskId": f"t-{n}"} for n in range(10_000) if begun.append(n) is None)
        assert begun == []
        async for _ in results:
            break

    run(client, use)
    assert 0 < len(begun) < 10_000


@pytest.mark.parametrize("kind", [iterated, handled])
def test_a_call_that_is_left_early_ends_in_a_thread(client: TaskClient, kind: Any) -> None:
    """Its end may write, and wait for answers."""
    threads: list[threading.Thread] = []

    def results(self: object) -> Generator[Any, None, None]:
        try:
            yield from range(3)
        finally:
            threads.append(threading.current_thread())

    def letters(self: object) -> HandledLetters:
        return HandledLetters(results(self), reading=None)  # type: ignore[arg-type]

    left = kind(results if kind is iterated else letters)

    async def use(tasks: AsyncTaskClient) -> None:
        async with aclosing(left(tasks)) as numbers:
            assert await anext(numbers) == 0
        assert len(threads) == 1
        async for _ in left(tasks):
            break

    run(client, use)
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def test_the_event_loop_goes_on_while_calls_wait(client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call sees the context variables of its caller, too."""
    together = threading.Barrier(5)
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")

    def slow(self: TaskClient, task_id: str) -> str:
        together.wait(SOON)  # four calls, and this test
        return request.get() + task_id

    monkeypatch.setattr(AsyncTaskClient, "get", async_tasks.awaited(slow))

    async def use(tasks: AsyncTaskClient) -> list[Any]:
        request.set("mine: ")
        calls = asyncio.gather(*(tasks.get(f"t-{n}") for n in range(4)))
        await asyncio.to_thread(together.wait, SOON)
        return list(await calls)

    assert run(client, use, max_threads=4) == [f"mine: t-{n}" for n in range(4)]


def test_waiting_takes_no_thread_and_ends_in_time(client: TaskClient) -> None:
    async def use(tasks: AsyncTaskClient) -> None:
        for n in range(5):
            await tasks.insert(f"t-{n}", delay_seconds=600)
        ended = await asyncio.gather(*(tasks.wait(f"t-{n}") for n in range(5)))
        assert {task.status for task in ended} == {Status.COMPLETED}
        assert (await tasks.wait_for_bucket(str(ended[0].bucket))).counts == {"completed": 5}
        await tasks.insert("late", delay_seconds=600)
        with pytest.raises(WaitTimedOut, match="late"):
            await tasks.wait("late", timeout=timedelta(seconds=90))
        with pytest.raises(InvalidInput):
            await tasks.wait("")

    run(client, use, max_threads=1)


def test_the_examples_of_the_page(
    world: InProcess, client: TaskClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskClient, "connect", lambda *_, **__: client)
    first, web_application, *_ = examples(page("async.md"))
    exec(first, {})
    assert capsys.readouterr().out.splitlines() == ["mail-42 scheduled", "ENABLED", "completed"]
    assert world.row("order-99")["status"]
    names: dict[str, Any] = {}
    exec(web_application, names)
    with TestClient(names["app"]) as http:
        answer = http.post("/reminders/7")
    assert (answer.status_code, answer.json()) == (201, {"taskId": "mail-7"})
    assert world.row("mail-7")["action"] == "log"


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
    assert_type(await client.insert_task(b.new_task(Mail("x"))), TaskView)
    b.new_task("x")  # wrong
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


@pytest.mark.long  # mypy has all of the package to read
def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    wrong = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert {int(line.split(":")[1]) for line in found.splitlines() if "error:" in line} == wrong, found
