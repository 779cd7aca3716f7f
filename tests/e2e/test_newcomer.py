"""The tutorial works from an empty folder with nothing but the wheel, and its first outcome is there soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.newcomer import walk

from dynatick_stack import processes

pytestmark = pytest.mark.long


def test_a_newcomer_comes_to_the_end_of_the_tutorial(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    said: list[str] = []
    measured = walk(tmp_path.resolve(), said.append, to_the_end=True)
    record_property("figure", str(measured))
    assert measured.is_good, "\n".join(said)
    text = "\n".join(said)
    assert "To bob@example.com: Tea is ready" in text
    assert "1 passed" in text
    assert processes.running(tmp_path.resolve() / "reminders" / ".dynatick" / "local") == {}
