"""An interruption ends a program, whatever it interrupts, when what it ends has cleaned up."""

import subprocess
import sys

import pytest

PROGRAM = """\
import io, signal, sys, time, threading, weakref
from contextlib import suppress
from pathlib import Path
from dynatick_stack import emulator, interruptions

class Interrupted(io.RawIOBase):
    def close(self):  # Python closes it when it deletes it, and drops what that raises
        signal.raise_signal(signal.SIGTERM)

interruptions.AGAIN_SECONDS = 0.05
with interruptions.ends_when_interrupted("Stopped", 3):
    {block}
print("it went on")
"""
LOST = """\
Interrupted()
    with suppress(KeyboardInterrupt):  # lost once more
        time.sleep(60)
    time.sleep(60)
"""
CLEANS_UP = """\
try:
        signal.raise_signal(signal.SIGINT)
    finally:
        emulator.stop(state_dir=Path("nowhere"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
        time.sleep(0.2)
        print("cleaned up")
"""
HOLDS_A_LOCK = """\
lock = threading.Lock()
    weakref.finalize(lock, lock.acquire)  # as urllib3 does with its pools
    lock.acquire()
    signal.raise_signal(signal.SIGHUP)
"""


@pytest.mark.parametrize(
    ("block", "printed"),
    [(LOST, ""), (CLEANS_UP, "cleaned up\n"), (HOLDS_A_LOCK, "")],
    ids=["in what Python deletes", "before what cleans up", "in what holds a lock"],
)
def test_an_interruption_ends_the_program(block: str, printed: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(block=block)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "Stopped\n", 3)
