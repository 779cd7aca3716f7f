"""Runs all that is random or long, one part after another, and prints a line for each: `make night`.

Each part is a command that may be repeated by itself; its line has the command with its seed, and its figure. One that
fails, or takes far longer than it should, does not keep the others from running. ``--hours``: how long all of it takes,
about, on two CPUs. In a try of less than MIN_HOURS hours, parts that can't be made shorter run a piece of themselves.
A night that was interrupted goes on, with the same hours, seed and commit, after the parts that had ended. With
``--write`` the figures go into docs/proof.md. Exit code 1 if a part failed.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from dynatick_stack.markdown import one_line, table, write_parts
from dynatick_stack.template import ROOT

PAGE = ROOT / "docs" / "proof.md"
FOLDER = ROOT / "build" / "night"  # a folder for each night: what its parts printed, and ENDED
ENDED = "ended.jsonl"  # a line for each part that has ended
HOURS = 8.0
MIN_HOURS = 3.0  # below that a night is a try
GRACE_MINUTES = 30.0  # beyond twice its time, after which a part is ended
TRACES_A_MINUTE = 600
TRACES = 10  # parts of them, so that an interruption does not cost hours


@dataclass(frozen=True, kw_only=True)
class Part:
    """``command``: for make, from the part's minutes and the seed. ``figure``: its line shows the last line of its
    output that matches. ``minutes``: how long it takes whatever it is given; None: as long as it is given, a ``share``
    of the time that is left. ``trial``: the command in a try."""

    name: str
    command: Callable[[float, int], str]
    figure: str
    minutes: float | None = None
    share: float = 0.0
    trial: str = ""
    shown: str = ""  # instead of that line, with its group
    writes: bool = False  # its own figures into docs/, with WRITE=1


PARTS = (  # first those that find the same however busy the machine is
    Part(
        name="changed traces", command=lambda minutes, seed: "traces CHANGED=1", minutes=2, writes=True,
        figure=r"\d+ of \d+ traces are refused.*",
    ),
    Part(
        name="proof", command=lambda minutes, seed: "prove", minutes=20, writes=True, trial="prove RULE=21",
        figure=r"[\d,]+ states, in which .*|Without rule .*",
    ),
    Part(
        name="mutations", command=lambda minutes, seed: "mutations", minutes=15, trial="mutations RULE=20",
        figure=r"\d+ of \d+ mutations noticed.*",
    ),
    *(
        Part(
            name=f"simulation of {of}", command=lambda minutes, seed, of=of: f"simulate OF={of}", minutes=5,  # type: ignore[misc]
            trial=f"simulate OF={of} TASKS=2000", figure=r"\| (1,000,000|2,000) .*", shown="{} tasks, none lost",
        )
        for of in ("bursts", "batch", "keys")
    ),
    Part(
        name="simulation of days", command=lambda minutes, seed: f"simulate OF=days SEED={seed}", minutes=10,
        writes=True, trial="simulate OF=days DAYS=0.5", figure=r"\| wrong +\| (\d+) +\|", shown="{} wrong",
    ),
    Part(
        name="simulation of zones", command=lambda minutes, seed: "simulate OF=zones", minutes=15, writes=True,
        trial="simulate OF=zones ZONES=1", figure=r"\| \d+ +\| .*",
    ),
    Part(
        name="simulation of chaos", command=lambda minutes, seed: "simulate OF=chaos", minutes=1, writes=True,
        figure=r"\| retry storm .*",
    ),
    *(
        Part(
            name=f"traces, {n + 1} of {TRACES}", share=0.65 / TRACES, figure=r"[\d,]+ traces accepted.*",
            command=lambda minutes, seed, n=n: (  # type: ignore[misc]
                f"traces TRACES={max(round(minutes * TRACES_A_MINUTE), 100)} SEED={seed + 1000 * n}"
            ),
        )
        for n in range(TRACES)
    ),
    Part(
        name="tests of the night", command=lambda minutes, seed: "night-tests", minutes=25,
        trial='night-tests ARGS="--collect-only"', figure=r".*\d+ (passed|failed|tests? collected).*",
    ),
    Part(
        name="search", share=0.2, figure=r"nothing|FAILED .*|\w*Error.*",
        command=lambda minutes, seed: f"search MINUTES={minutes:.3g} SEED={seed}",
    ),
    Part(
        name="soak", share=0.15, figure=r"verdict: .*|.*[Ee]rror: .*",
        command=lambda minutes, seed: f"soak MINUTES={minutes:.3g} SEED={seed}",
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ended:
    name: str  # of the part
    command: str
    result: str  # ok, or FAILED
    minutes: float
    figure: str
    day: str  # on which it ended

    @property
    def cells(self) -> list[str]:
        return [self.name, f"`{self.command}`", f"{self.minutes:.1f}", self.result, self.figure]


def planned(hours: float, seed: int, *, write: bool) -> Iterator[tuple[Part, str, float]]:
    """Each part, its command, and the minutes that it should take."""
    is_try = hours < MIN_HOURS
    fixed = 0.0 if is_try else sum(part.minutes or 0.0 for part in PARTS)
    for part in PARTS:
        minutes = part.share * (hours * 60 - fixed) if part.minutes is None else part.minutes
        command = part.trial if is_try and part.trial else part.command(minutes, seed)
        writes = write and part.writes and not is_try
        yield part, f"make {command}{' WRITE=1' if writes else ''}", minutes


def run(part: Part, command: str, minutes: float, log: Path) -> Ended:
    began = time.monotonic()
    with log.open("wb") as output:
        process = None
        try:
            with _terminated_later():
                # A session of its own: all that it has started ends with it.
                process = subprocess.Popen(
                    shlex.split(command), cwd=ROOT, env=_environment(), stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            code: int | None = process.wait(timeout=(2 * minutes + GRACE_MINUTES) * 60)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")
    found = list(re.finditer(rf"^(?:{part.figure})$", text, re.MULTILINE))
    lines = [part.shown.format(*one.groups()) or one.group() for one in found]
    result = "FAILED: it took too long" if code is None else "FAILED" if code or not lines else "ok"
    return Ended(
        name=part.name, command=command, result=result, minutes=(time.monotonic() - began) / 60,
        figure=one_line(lines[-1]) if lines else "no figure", day=f"{datetime.now(UTC):%Y-%m-%d}",
    )  # fmt: skip


@contextmanager
def _terminated_later() -> Iterator[None]:
    """Lets a SIGTERM wait for the end of what is done meanwhile: a process that is about to be known is not left."""
    came: list[int] = []
    handler = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        for number in came:
            signal.raise_signal(number)


def _environment() -> dict[str, str]:
    """Without what make hands down: a part's command has all of its variables."""
    handed_down = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "HOURS", "SEED", "WRITE"}
    return {name: value for name, value in os.environ.items() if name not in handed_down}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=HOURS, help=f"how long, about ({HOURS:g})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20), help="of all that draws")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/proof.md")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that its part is ended, too
    commit = subprocess.run(("git", "rev-parse", "--short", "HEAD"), cwd=ROOT, capture_output=True, text=True).stdout
    folder = FOLDER / f"{given.hours:g}-hours-{given.seed}-{commit.strip()}"
    folder.mkdir(parents=True, exist_ok=True)
    again = f"make night HOURS={given.hours:g} SEED={given.seed}"
    print(f"Seed {given.seed}: the same again, or on from here, by {again}. Outputs are in {folder}", flush=True)
    record = folder / ENDED
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    done = {one.name: one for one in (Ended(**json.loads(line)) for line in lines)}
    if done:
        print(f"It goes on after {len(done)} of {len(PARTS)} parts", flush=True)
    for n, (part, command, minutes) in enumerate(planned(given.hours, given.seed, write=given.write), 1):
        if part.name in done:
            continue
        ended = run(part, command, minutes, folder / f"{n:02}-{part.name.replace(' ', '-')}.log")
        done[part.name] = ended
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(ended)) + "\n")
        print(f"{part.name:<20} {ended.minutes:6.1f} min  {ended.result:<8} {command}: {ended.figure}", flush=True)
    record.unlink()  # what comes next is another night
    if given.write:
        days = sorted({one.day for one in done.values()})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        head = f"Of {when}, by `{again} WRITE=1`, of commit {commit.strip()}, on {os.cpu_count()} CPUs."
        if lines:
            head = f"{head} It was interrupted, and went on."
        if given.hours < MIN_HOURS:
            head = f"{head} This was a try, and no whole night."
        rows = table(("Part", "Command", "Minutes", "Result", "Figure"), [one.cells for one in done.values()])
        write_parts(PAGE, {"night": f"{head}\n\n{rows}"})
    return 0 if all(one.result == "ok" for one in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
