"""A night runs each part, also when others fail, and says what each found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import night
from tests.night import PARTS, Ended, Part, planned, run

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def part(name: str, figure: str = r"\d+ found") -> Part:
    return Part(name=name, command=lambda minutes, seed: name, minutes=1, figure=figure)


def test_each_part_is_a_target_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    for hours in (0.1, 8.0):
        plans = list(planned(hours, 7, write=True))
        assert [one for one, *_ in plans] == list(PARTS)
        assert {command.split()[1] for _, command, _ in plans} <= targets
        assert all(("WRITE=1" in command) == (one.writes and hours == 8.0) for one, command, _ in plans)


def test_a_night_of_eight_hours_is_planned_to_last_eight() -> None:
    assert sum(minutes for *_, minutes in planned(8.0, 7, write=False)) == pytest.approx(480)
    assert "traces TRACES=" in "".join(command for _, command, _ in planned(8.0, 7, write=False))


@pytest.mark.parametrize(
    ("command", "result", "figure"),
    [
        ("echo 3 found", "ok", "3 found"),
        ("printf '1 found\\n2 found\\n'", "ok", "2 found"),
        ("sh -c 'echo 3 found; exit 1'", "FAILED", "3 found"),
        ("echo nothing", "FAILED", "no figure"),
    ],
)
def test_a_part_has_succeeded_if_it_says_so_and_has_a_figure(
    command: str, result: str, figure: str, tmp_path: Path
) -> None:
    ended = run(part("a"), command, 1, tmp_path / "log")
    assert (ended.result, ended.figure) == (result, figure)


def test_a_part_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night, "GRACE_MINUTES", 0.001)
    assert run(part("a"), "sleep 60", 0.0, tmp_path / "log").result == "FAILED: it took too long"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a night of two parts, of which one fails."""
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: night -->\n<!-- /generated -->\n")
    monkeypatch.setattr(night, "PAGE", page)
    monkeypatch.setattr(night, "FOLDER", tmp_path / "nights")
    plans = [(part("bad"), "false", 1.0), (part("good"), "echo 3 found", 1.0)]
    monkeypatch.setattr(night, "planned", lambda *_, **__: plans)
    return page


def test_one_that_fails_does_not_keep_the_others_from_running(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert night.main(["--seed", "7", "--write"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Seed 7: the same again, or on from here, by make night HOURS=8 SEED=7")
    assert [line.split()[0] for line in lines[1:]] == ["bad", "good"]
    written = page.read_text()
    assert "| bad | `false` | 0.0 | FAILED | no figure |" in written
    assert "| good | `echo 3 found` | 0.0 | ok | 3 found |" in written
    assert "interrupted" not in written


def test_one_that_was_interrupted_goes_on(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []

    def interrupted(part: Part, command: str, minutes: float, log: Path) -> Ended:
        begun.append(part.name)
        if begun == ["bad", "good"]:
            raise KeyboardInterrupt
        return run(part, command, minutes, log)

    monkeypatch.setattr(night, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        night.main(["--seed", "7", "--write"])
    assert night.main(["--seed", "7", "--write"]) == 1
    assert begun == ["bad", "good", "good"]
    assert "It goes on after 1 of " in capsys.readouterr().out
    written = page.read_text()
    assert "It was interrupted, and went on." in written
    assert written.index("| bad | `false`") < written.index("| good | `echo 3 found` | 0.0 | ok | 3 found |")

    assert night.main(["--seed", "7"]) == 1
    assert begun[3:] == ["bad", "good"]  # the next night


_ONE_THAT_WAITS = """
import os, pathlib, signal, subprocess, sys
from tests import night
night.FOLDER = folder = pathlib.Path(sys.argv[1])
part = night.Part(name="waits", command=lambda minutes, seed: "", figure="", minutes=600)
night.planned = lambda *_, **__: [(part, "sh -c 'echo $$; exec sleep 36000'", 600)]

class TerminatesThis(subprocess.Popen):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        if "start_new_session" in more:
            while not any(log.read_text() for log in folder.glob("*/*.log")):
                pass
            os.kill(os.getpid(), signal.SIGTERM)

if sys.argv[2:]:
    subprocess.Popen = TerminatesThis
night.main([])
"""


@pytest.mark.parametrize("as_it_begins", [False, True])
def test_what_a_part_has_started_ends_with_a_night_that_is_terminated(tmp_path: Path, as_it_begins: bool) -> None:
    arguments = [sys.executable, "-c", _ONE_THAT_WAITS, str(tmp_path), *(["itself"] if as_it_begins else [])]
    process = subprocess.Popen(arguments, cwd=ROOT)
    for _ in range(60 * 20):
        if started := "".join(log.read_text() for log in tmp_path.glob("*/*.log")):
            break
        time.sleep(0.05)  # wait: between two looks for the number of the part's process
    if not as_it_begins:
        process.terminate()
    assert process.wait(60) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(started), 0)
