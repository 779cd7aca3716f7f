"""A frozen process keeps no file locked that others wait for."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import signal, sys, threading
from tests.sandbox.locks import locked, stop

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
locks, may_unlock = threading.Event(), threading.Event()

def hold():
    with open(sys.argv[1]) as file, locked(file):
        locks.set()
        may_unlock.wait()

threading.Thread(target=hold).start()
locks.wait()
threading.Timer(0.2, may_unlock.set).start()  # wait: so that the process wants to stop before, as a rule
stop()
print("thawed", flush=True)
"""


def test_a_process_is_not_frozen_while_one_of_its_threads_has_a_file_locked(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    command = [sys.executable, "-c", PROGRAM, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        with file.open() as ours:
            fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if it is locked
        process.send_signal(signal.SIGCONT)
        assert process.communicate() == ("thawed\n", None)
