"""`make screenshots` writes the same pictures each time."""

from __future__ import annotations

from pathlib import Path

from tests.ui.screenshots import SHOWN, write

MAX_BYTES = 150_000


def test_a_second_run_writes_the_same_pictures(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first"), write(tmp_path / "second")
    assert len(first) == 2 * len(SHOWN)
    for one, again in zip(first, second, strict=True):
        assert one.name == again.name
        assert one.read_bytes() == again.read_bytes(), one.name
        assert one.stat().st_size <= MAX_BYTES, one.name


def test_light_and_dark_are_different_pictures(tmp_path: Path) -> None:
    written = {path.name: path.read_bytes() for path in write(tmp_path)}
    for name in SHOWN:
        assert written[f"dashboard-{name}-light.png"] != written[f"dashboard-{name}-dark.png"]
