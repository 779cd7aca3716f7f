"""Checks the model of the protocol, proof/dynatick.pml, with Spin: `make prove`.

Every configuration is searched exhaustively, and must hold. Then each rule of docs/protocol.md is taken out in turn,
and the shortest way in which that goes wrong is printed as a story: `make prove RULE=9`. A rule that goes unnoticed is
an error, unless NO_SAFETY says why nothing can go wrong without it.

Needs `spin` and `gcc`, as nothing else of the project does.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dynatick_stack.markdown import table, write_parts

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "proof.md"
MEMORY_MB = 7000
DEPTH = 100_000


@dataclass(frozen=True)
class Configuration:
    """A world that is searched: what is in it, and the macros of the model that make it so."""

    name: str
    what: str
    macros: str


@dataclass(frozen=True)
class Removal:
    """A part of a rule, taken out: ``code``, its number in the model; ``macros``, the world in which that shows."""

    rule: int
    code: int
    what: str
    macros: str
    is_large: bool = False  # too large to be searched breadth first


@dataclass(frozen=True)
class Search:
    """What Spin found. ``story``: how the error comes about, line by line."""

    states: int
    depth: int
    seconds: float
    is_complete: bool
    has_error: bool
    story: Sequence[str] = ()


CONFIGURATIONS = (
    Configuration("ticks", "1 task, 2 ticks, index and stream behind", "INVOCATIONS=2 END=3"),
    Configuration(
        "skew", "the same, and the clock of one processor is ahead", "INVOCATIONS=2 END=4 SKEW=1 BUCKETS=2 LIFE=0"
    ),
    Configuration("passes", "3 passes, records of the stream repeated", "INVOCATIONS=3 END=3 LIFE=0 AGAIN"),
    Configuration("edits", "cancel and reschedule, twice", "INVOCATIONS=2 END=3 EDITS=2 LIFE=0"),
    Configuration("two tasks", "2 tasks, 1 pass", "TASKS=2 INVOCATIONS=1 END=2 LIFE=0"),
    Configuration("wake-ups", "passes and wake-ups, 3 in all, edits", "INVOCATIONS=3 END=2 EDITS=1 WAKES LIFE=0"),
    Configuration(
        "lost answers", "handlers fail, writes are sent twice", "INVOCATIONS=2 END=3 RETRIES REPEATS=1 LIFE=0 BUCKETS=1"
    ),
    Configuration(
        "no shard lease", "ticks that don't respect the shard lease", "INVOCATIONS=3 END=3 STEAL BUCKETS=1 LIFE=0"
    ),
    Configuration("new shard", "a shard without a cursor", "INVOCATIONS=2 END=3 NEW_SHARD"),
    Configuration("scan", "the stream loses records; a scan at the end", "INVOCATIONS=2 END=3 LOST"),
    Configuration("recovery", "a task that kills its process, and its neighbour, 2 attempts", "CONFIG_RECOVERY"),
    Configuration("plan", "3 passes plan wake-ups; answers of closing writes are lost", "CONFIG_PLAN"),
    Configuration("pack", "a pack of 3 members, 2 processors, 2 changes by a client", "CONFIG_PACK"),
    Configuration("limit keys", "3 tasks of a key with limit 1; the number of shards changes", "CONFIG_KEYS"),
)

REMOVALS = (
    Removal(1, 1, "a pass closes at its end", "INVOCATIONS=2 END=3"),
    Removal(1, 101, "C goes back", "INVOCATIONS=3 END=2 LAG=0 LIFE=0"),
    Removal(2, 2, "the pass polls only the minutes of the present grid", "INVOCATIONS=2 END=3 LIFE=0"),
    Removal(3, 3, "no wait for the index before the final poll", "INVOCATIONS=2 END=3 LIFE=0"),
    Removal(3, 103, "what is not recorded does not hold S back", "INVOCATIONS=2 END=3 LIFE=0 RETRIES"),
    Removal(3, 203, "L without the 4 s of the clocks", "INVOCATIONS=2 END=3 LIFE=0 SKEW=1"),
    Removal(4, 4, "checkpointAt is read before the closing write", "INVOCATIONS=2 END=3"),
    Removal(5, 5, "C is read before the row", "INVOCATIONS=2 END=3 LIFE=0"),
    Removal(5, 105, "placement overwrites a reschedule", "INVOCATIONS=1 END=3 EDITS=1 BUCKETS=4"),
    Removal(6, 6, "placement leaves running tasks", "INVOCATIONS=2 END=2 WAKES BUCKETS=1"),
    Removal(
        7,
        7,
        "the scheduler does not read C after its move",
        "INVOCATIONS=4 END=2 WAKES BUCKETS=1 LAG=0 LIFE=0",
        is_large=True,
    ),
    Removal(8, 8, "the stream does not show a reschedule", "INVOCATIONS=1 END=3 EDITS=1 LIFE=0"),
    Removal(9, 9, "the claim ignores the bucket", "INVOCATIONS=1 END=2 EDITS=1 BUCKETS=3 LIFE=0"),
    Removal(9, 109, "the claim ignores status and outcome", "INVOCATIONS=1 END=2 EDITS=1 LIFE=0"),
    Removal(10, 10, "last attempts share a recovery", "CONFIG_RECOVERY"),
    Removal(10, 110, "the attempt is counted with its record", "CONFIG_RECOVERY"),
    Removal(11, 11, "the task lease ends before the process does", "INVOCATIONS=2 END=2 STEAL BUCKETS=1"),
    Removal(12, 12, "a record ignores the token", "INVOCATIONS=2 END=2 STEAL RETRIES REPEATS=1 BUCKETS=1"),
    Removal(13, 13, "cancel ends running tasks", "INVOCATIONS=1 END=2 EDITS=1 LIFE=0"),
    Removal(13, 113, "reschedule moves running tasks", "INVOCATIONS=1 END=2 EDITS=1 BUCKETS=3 LIFE=0"),
    Removal(14, 14, "only ticks create the cursor", "INVOCATIONS=1 END=3 NEW_SHARD LIFE=0"),
    Removal(15, 15, "no scan", "INVOCATIONS=1 END=2 LOST LIFE=0"),
    Removal(16, 16, "an end write sets C back", "INVOCATIONS=3 END=2 STEAL LAG=0 LIFE=0", is_large=True),
    Removal(17, 17, "a wake-up moves S", "TASKS=2 INVOCATIONS=1 END=2 WAKES LIFE=0"),
    Removal(18, 18, "a wake-up claims whatever the instant", "INVOCATIONS=1 END=2 EDITS=1 BUCKETS=3 WAKES LIFE=0"),
    Removal(18, 118, "a wake-up does not wait", "INVOCATIONS=1 END=2 BUCKETS=2 WAKES LIFE=0"),
    Removal(19, 19, "every pass plans", "CONFIG_PLAN"),
    Removal(20, 20, "the pack counts a member before it has its row", "CONFIG_PACK"),
    Removal(20, 120, "a member's row is created over what is there", "CONFIG_PACK"),
    Removal(20, 220, "a pack is released without a row for a member that runs", "CONFIG_PACK"),
    Removal(21, 21, "an expired pack is run again", "CONFIG_PACK"),
    Removal(22, 22, "clients change members of a running pack", "CONFIG_PACK"),
    Removal(22, 122, "a reschedule is two writes", "CONFIG_PACK"),
    Removal(22, 222, "a release that is sent twice counts twice", "CONFIG_PACK"),
    Removal(23, 23, "tasks begin without the limits lease", "CONFIG_KEYS"),
    Removal(23, 123, "a task is handed over before its place is written", "CONFIG_KEYS"),
    Removal(24, 24, "the leases of other shards are not read", "CONFIG_KEYS"),
    Removal(24, 124, "the number of shards is read before the lease is written", "CONFIG_KEYS"),
)

NO_SAFETY: Mapping[int, str] = {}
"""Rules without which nothing of what is checked goes wrong, and why."""

_WHO = {0: "a client", 1: "the scheduler", 2: "the scan", 3: "the stream", 10: "a tick"}


def flags(macros: str) -> list[str]:
    return [f"-D{macro}" for macro in macros.split()]


def search(macros: str, *, shortest: bool = False) -> Search:
    """Builds the model with these macros, and searches it. ``shortest``: breadth first, which finds the shortest way to
    an error, and needs more memory.

    Raises SystemExit if Spin or the compiler refuses the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        for part in HERE.glob("*.pml"):
            shutil.copy(part, folder)
        _run(folder, "spin", *flags(macros), "-a", "dynatick.pml")
        options = ["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}", *(["-DBFS"] if shortest else [])]
        _run(folder, "gcc", *options, "-o", "pan", "pan.c")
        began = time.monotonic()
        output = _run(folder, "./pan", "-n", f"-m{DEPTH}", must_succeed=False)
        seconds = time.monotonic() - began
        states, depth, errors = (
            int(float(found[1])) if (found := re.search(pattern, output)) else None
            for pattern in (r"([\d.e+]+) states, stored", r"depth reached (\d+)", r"errors: (\d+)")
        )
        if states is None or depth is None or errors is None:
            return Search(0, 0, seconds, is_complete=False, has_error=False)
        return Search(
            states, depth, seconds,
            is_complete=not re.search("Search not completed|depth too small|out of memory|memory limit", output),
            has_error=errors > 0,
            story=story(_run(folder, "spin", "-t", "-T", *flags(macros), "dynatick.pml")) if errors else (),
        )  # fmt: skip


def _run(folder: str, *command: str, must_succeed: bool = True) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if must_succeed and done.returncode and "-t" not in command:  # a trail ends with the assertion that it violates
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def story(trail: str) -> list[str]:
    """The lines that the model printed on its way to an error, who did what, and the assertion that failed."""
    lines = [
        f"12:{int(at):02}  {_who(int(who))} {what}" for at, who, what in re.findall(r"@(\d+) \[(\d+)\] (.*)", trail)
    ]
    failed = re.search(r"text of failed assertion: assert\((.*)\)", trail)
    return [*lines, f"       and then this does not hold: {failed[1]}" if failed else "       and then nothing goes on"]


def _who(who: int) -> str:
    return _WHO.get(who) or (f"wake-up {who - 20}" if who >= 20 else f"tick {who - 10}")


# -- what it prints ----------------------------------------------------------------------------------------------------


def check() -> tuple[bool, list[list[str]]]:
    """Searches all configurations. Returns whether all hold, and a row of the page's table for each."""
    rows, total, seconds, holds = [], 0, 0.0, True
    for one in CONFIGURATIONS:
        found = search(one.macros)
        good = found.is_complete and not found.has_error
        holds, total, seconds = holds and good, total + found.states, seconds + found.seconds
        result = "holds" if good else "does NOT hold" if found.has_error else "was NOT searched to its end"
        print(
            f"{one.name:<15} {found.states:>11,} states, depth {found.depth:>4}, {found.seconds:>6.1f} s: {result}",
            flush=True,
        )
        print("".join(f"    {line}\n" for line in found.story), end="")
        rows.append([one.name, one.what, f"{found.states:,}", str(found.depth), f"{found.seconds:.0f}", result])
    print(f"{'in all':<15} {total:>11,} states, {seconds:.0f} s")
    rows.append(["in all", "", f"{total:,}", "", f"{seconds:.0f}", ""])
    return holds, rows


def remove(rule: int | None) -> tuple[bool, list[list[str]]]:
    """Takes out the rule, or each in turn. Returns whether all were missed, and a row of the page's table for each."""
    rows, missed = [], True
    for one in REMOVALS:
        if rule not in (None, one.rule):
            continue
        found = search(f"RULE_OFF={one.code} {one.macros}", shortest=not one.is_large)
        missed = missed and found.has_error
        nothing = "NOTHING GOES WRONG" if found.is_complete else "It was NOT searched to its end"
        print(f"\nWithout rule {one.rule}: {one.what}. {found.states:,} states, {found.seconds:.1f} s", flush=True)
        print("".join(f"    {line}\n" for line in found.story) or f"    {nothing}\n", end="", flush=True)
        steps = [line[7:] for line in found.story]
        rows.append([str(one.rule), one.what, str(len(steps) - 1), "; ".join(steps[:-1])])
    for number, why in NO_SAFETY.items():
        if rule in (None, number):
            print(f"\nWithout rule {number} nothing that is checked goes wrong: {why}")
            rows.append([str(number), "not taken out", "", why])
    return missed, rows


def main() -> int:
    """Returns 1 if a configuration does not hold or was not searched to its end, or if a rule is not missed."""
    parser = argparse.ArgumentParser(prog="make prove", description=__doc__.splitlines()[0] if __doc__ else None)
    rules = sorted({one.rule for one in REMOVALS} | set(NO_SAFETY))
    parser.add_argument("--rule", type=int, choices=rules, help="take out this rule only")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/proof.md")
    options = parser.parse_args()
    if missing := [name for name in ("spin", "gcc") if shutil.which(name) is None]:
        print(f"make prove needs {' and '.join(missing)}, a Debian package: apt-get install spin gcc", file=sys.stderr)
        return 2
    if options.rule is not None:
        return 0 if remove(options.rule)[0] else 1
    holds, configurations = check()
    missed, removals = remove(None)
    what_holds, what_is_missed = "all" if holds else "NOT all", "each" if missed else "NOT each"
    print(f"\n{configurations[-1][2]} states, in which {what_holds} holds; {what_is_missed} of the rules is missed")
    if options.write:
        today = f"{datetime.now(UTC):%Y-%m-%d}, by `make prove WRITE=1`, on one core."
        write_parts(PAGE, {
            "configurations": f"Of {today}\n\n"
            + table(("Configuration", "With", "States", "Depth", "Seconds", "Result"), configurations),
            "removals": table(("Rule", "Taken out", "Steps", "What goes wrong"), removals),
        })  # fmt: skip
    return 0 if holds and missed else 1


if __name__ == "__main__":
    sys.exit(main())
