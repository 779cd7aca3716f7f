"""Searches with fresh seeds for what breaks a property (``make search``).

Runs every test that draws: those of Hypothesis, the model, and the comparison of schedule expressions with brute force.
``make test`` draws the same each time. Options that it does not know are for pytest: ``-k buckets``.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; a round at least (10)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20), help="of the first round")
    parser.add_argument("--tests", nargs="+", default=["tests/unit", "tests/model"], help="files and folders of tests")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many search (one for each CPU)")
    options, for_pytest = parser.parse_known_args(arguments)
    print(f"SEED={options.seed}", flush=True)
    running = [
        _start(options.seed + number, options.minutes, options.processes, [*options.tests, *for_pytest])
        for number in range(options.processes)
    ]
    try:
        with ThreadPoolExecutor(len(running)) as threads:
            for ended in as_completed([threads.submit(_output, process) for process in running]):
                if (output := ended.result()) is not None:
                    _end(running)
                    print(output)
                    print("Keep what it found as an @example, or in tests/model/counterexamples.py.")
                    return 1
    finally:
        _end(running)
    print("nothing")
    return 0


def _start(seed: int, minutes: float, step: int, for_pytest: list[str]) -> subprocess.Popen[str]:
    pytest = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-m", "hypothesis or draws", *for_pytest]
    rounds = ["-p", "tests.search.rounds", "--search-minutes", str(minutes), "--search-step", str(step)]
    command = [*pytest, *rounds, "--hypothesis-seed", str(seed)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _output(process: subprocess.Popen[str]) -> str | None:
    """Prints the rounds of a process as they end. Returns all that it wrote if it did not succeed."""
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if line.startswith("round "):
            print(line, end="", flush=True)
    return "".join(lines) if process.wait() else None


def _end(running: list[subprocess.Popen[str]]) -> None:
    for process in running:
        process.terminate()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through ``finally``, so that no process is left
    sys.exit(main())
