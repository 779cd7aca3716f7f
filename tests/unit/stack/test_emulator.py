"""The emulator's processes: found by their command lines, ended together; ports refused in plain words."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.ports import reserved_port

from dynatick_stack import emulator, processes
from dynatick_stack.errors import NotRunningError, RefusedError

SLEEP = "import time; time.sleep(60)"
# Does as MiniStack's workers may: takes no notice of a polite request to end.
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); {SLEEP}"


Run = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts a Python; it is ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, *map(str, arguments)], stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.wait()


def test_finds_the_emulator_and_its_workers_and_no_others(tmp_path: Path, run: Run) -> None:
    mine, other = tmp_path / "local", tmp_path / "local-2"
    worker = processes.worker_folder(mine) / "function" / "_worker.py"
    worker.parent.mkdir(parents=True)
    worker.write_text(SLEEP)
    emulated = run("-X", processes.marker(mine), "-c", SLEEP)
    working = run(worker)
    elsewhere = run("-X", processes.marker(other), "-c", SLEEP)
    assert processes.wait_until(lambda: processes.running(mine).keys() == {emulated.pid, working.pid}, 60)
    assert processes.emulator(mine) == emulated.pid
    assert processes.wait_until(lambda: processes.running(other).keys() == {elsewhere.pid}, 60)


def test_stops_what_will_not_end_by_itself(tmp_path: Path, run: Run) -> None:
    stubborn = run("-X", processes.marker(tmp_path), "-c", STUBBORN)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    assert processes.stop(tmp_path)
    assert stubborn.wait(60) == -signal.SIGKILL
    assert not processes.stop(tmp_path)


def test_a_number_written_down_earlier_and_a_file_cut_short_are_not_believed(tmp_path: Path) -> None:
    # The process exists, but it is this one: the emulator died and its number was given away.
    (tmp_path / "state.json").write_text(json.dumps({"pid": os.getpid(), "port": 4566}))
    with pytest.raises(NotRunningError, match="make up"):
        emulator.current(state_dir=tmp_path)
    for cut_short in ("{", "[]", '{"pid": 1}'):
        (tmp_path / "state.json").write_text(cut_short)
        with pytest.raises(NotRunningError):
            emulator.current(state_dir=tmp_path)


def test_down_deletes_what_a_local_stack_has_made_and_nothing_else(tmp_path: Path) -> None:
    precious = tmp_path / "tmp" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years")
    assert not emulator.stop(state_dir=tmp_path)
    assert precious.read_text() == "years"
    ours = tmp_path / "ours"
    (processes.worker_folder(ours) / "code").mkdir(parents=True)
    for name in (emulator.MARKER, "emulator.log", "state.json", "mine.txt"):
        (ours / name).touch()
    emulator.provide(tmp_path / "tmp", state_dir=ours)
    emulator.stop(state_dir=ours)
    assert [path.name for path in ours.iterdir()] == ["mine.txt"]
    (ours / "mine.txt").unlink()
    (ours / emulator.MARKER).touch()
    emulator.stop(state_dir=ours)
    assert not ours.exists()
    assert precious.read_text() == "years", "what a link leads to"


def test_a_start_refuses_a_folder_with_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "emulator_python", lambda say: Path(sys.executable))
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(RefusedError, match="holds other files"):
        emulator.start(0, state_dir=tmp_path, say=print)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("given", [".", "nowhere/recording"])
def test_a_start_refuses_a_recording_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setattr(emulator, "emulator_python", lambda say: Path(sys.executable))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(emulator.RECORDING, given)
    with pytest.raises(RefusedError, match=f"DYNATICK_LOCAL_RECORDING is {given}; expected a file"):
        emulator.start(0, state_dir=tmp_path / "local", say=print)
    assert list(tmp_path.iterdir()) == []


def test_the_functions_get_none_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    environment = emulator._environment(4566, tmp_path)
    assert "AWS_PROFILE" not in environment
    assert environment["BIND_HOST"] == "127.0.0.1"
    assert environment["GATEWAY_PORT"] == "4566"


def test_a_free_port_that_another_program_takes_meanwhile_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start_process(command: list[object], *, env: dict[str, str], **options: object) -> None:
        started.append(int(env["GATEWAY_PORT"]))
        raise NotRunningError("no emulator in this test")

    monkeypatch.setattr(emulator, "emulator_python", lambda say: sys.executable)
    monkeypatch.setattr(emulator.subprocess, "Popen", start_process)
    with socket.create_server(("127.0.0.1", 0)) as taken, reserved_port() as free:
        for port in (0, None):
            ports = iter([taken.getsockname()[1], free] if port == 0 else [free])
            monkeypatch.setattr(emulator, "PORT", taken.getsockname()[1])
            monkeypatch.setattr(emulator, "_free_port", lambda ports=ports: next(ports))
            with pytest.raises(NotRunningError):
                emulator.start(port, state_dir=tmp_path / "local", say=print)
    assert started == [free, free]
