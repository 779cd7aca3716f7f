"""Delays what the engine's threads do, one kind after another, so that tests that wait for luck fail: `make delays`.

A busy machine puts off any thread for a tenth of a second, now and then. Here that happens on any machine, to the first
calls of each object. ``--kind``: one kind alone. Options that it does not know are for pytest, as are other files and
folders than FOLDERS. Exit code 1 if a test failed.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from dynatick.engine.invocation import Execution, PauseWatch
from dynatick.engine.pools import IoPool, Jobs, RemoteCalls, TaskPool
from dynatick_stack.template import ROOT

SECONDS = 0.12
CALLS = 6  # of each object, the first
FOLDERS = ("tests/unit/engine", "tests/unit/test_processor_app.py", "tests/unit/test_testing.py")

Method = Callable[..., Any]
Delay = Callable[[object], None]


def before(called: Method, delay: Delay) -> Method:
    """The method, with a delay before it."""

    def late(self: object, *arguments: object) -> object:
        delay(self)
        return called(self, *arguments)

    return late


def after(called: Method, delay: Delay) -> Method:
    """The method, with a delay before it returns."""

    def late(self: object, *arguments: object) -> object:
        result = called(self, *arguments)
        delay(self)
        return result

    return late


def after_job(called: Method, delay: Delay) -> Method:
    """The method, with a delay before the job that it submits returns."""

    def late(self: object, job: Method) -> object:
        return called(self, lambda: (job(), delay(self))[0])

    return late


KINDS: dict[str, tuple[type, str, Callable[[Method, Delay], Method]]] = {
    "begin": (TaskPool, "run", before),  # a thread takes a task, and does not begin it yet
    "end": (TaskPool, "run", after),  # an attempt has ended, and is not reported yet
    "answer": (IoPool, "submit", after_job),  # the table has answered, and nobody knows yet
    "round": (Execution, "handle_events", before),  # the coordinator stands still
    "pause": (PauseWatch, "_read", before),
    "remote": (RemoteCalls, "_call", before),  # another service takes its time
    "job": (Jobs, "_run", before),
}


def delay(kind: str, patch: pytest.MonkeyPatch, sleep: Callable[[float], None] = time.sleep) -> None:
    """Delays calls of a kind, until the patch is undone: in further threads alone, but for the coordinator's rounds."""
    owner, name, late = KINDS[kind]
    left: WeakKeyDictionary[object, int] = WeakKeyDictionary()

    def delays(one: object) -> None:
        number = left.get(one, CALLS)
        if number and (kind == "round" or threading.current_thread() is not threading.main_thread()):
            left[one] = number - 1
            sleep(SECONDS)  # wait: the delay

    patch.setattr(owner, name, late(getattr(owner, name), delays))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--delay", choices=KINDS, required=True, help="what is delayed")


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    delay(config.getoption("--delay"), patch)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.delays", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, help="this one alone")
    options, for_pytest = parser.parse_known_args(arguments)
    failed = []
    for kind in [options.kind] if options.kind else KINDS:
        # They mostly sleep, so there are more processes than CPUs.
        pytest_ = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-n", "6", "-p", "tests.delays"]
        paths = () if any(not one.startswith("-") for one in for_pytest) else FOLDERS
        run = subprocess.run(
            [*pytest_, "--delay", kind, *for_pytest, *paths], cwd=ROOT, capture_output=True, text=True, check=False
        )
        print(f"{kind:<8}{run.stdout.strip().splitlines()[-1]}", flush=True)
        if run.returncode:
            failed.append(kind)
            print(run.stdout, run.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
