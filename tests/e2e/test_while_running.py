"""What happens by hand to a row while its task runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.builders import key_of
from tests.e2e.support import STREAM_SECONDS, World, deployed, eventually, room

from dynatick_stack.demo.receiver import Call

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def held() -> threading.Event:
    """What calls of /held wait for."""
    return threading.Event()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, held: threading.Event) -> Iterator[World]:
    """A stack whose receiver can keep a task running."""

    def answers(call: Call, earlier: int) -> int:
        if call.path == "/held":
            held.wait(60)
        return 204

    with deployed(tmp_path_factory.mktemp("hand") / "local", answers=answers, TickMinutes=1) as world:
        yield world
        held.set()


def test_rows_that_run(world: World, held: threading.Event) -> None:
    room(10)
    world.put_webhook("running-replaced", "/held")
    world.put_webhook("running-deleted", "/held")
    # A slow task holds up nobody.
    world.put_webhook("running-beside", "/quick")
    world.run_until(lambda: len(world.receiver.of("running-replaced") + world.receiver.of("running-deleted")) == 2)
    assert world.status("running-replaced") == world.status("running-deleted") == "running"
    world.run_to_end(["running-beside"])

    world.delete("running-deleted")
    old = world.the("running-replaced")
    world.put_webhook("running-replaced", "/new")
    eventually(lambda: world.the("running-replaced").get("status") == "scheduled", within=STREAM_SECONDS)
    held.set()
    replaced = world.run_to_end(["running-replaced"])["running-replaced"]
    # The old task's outcome was recorded neither over the new one nor in place of what was deleted.
    assert world.runs("running-replaced") == [("/held", key_of(old)), ("/new", key_of(replaced))]
    assert key_of(old) != key_of(replaced)
    assert (replaced["status"], replaced["run"], replaced["attempt"]) == ("completed", 1, 1)
    assert world.row("running-deleted") is None
    assert [path for path, _ in world.runs("running-deleted")] == ["/held"]
