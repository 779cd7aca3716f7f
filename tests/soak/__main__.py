"""`python -m tests.soak`: exit code 0 if nothing is lost and all explained, 1 if not, 130 if interrupted."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from dynatick_stack.scratch import run_in_scratch, say

SHOWN = 40  # problems
FAKE_AWS = {
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test"),
    **dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1"),
    **dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull),
    "AWS_EC2_METADATA_DISABLED": "true",
}


def main(arguments: list[str] | None = None) -> int:
    return run_in_scratch("soak", partial(_run, options=_options(arguments)))


def _run(folder: Path, *, options: argparse.Namespace) -> int:
    os.environ.update(FAKE_AWS)

    # The SDK reads the environment when it is imported.
    from tests.soak.plan import Plan
    from tests.soak.run import soak
    from tests.soak.summary import lines

    plan = Plan(
        seed=options.seed, minutes=options.minutes, processors=options.processors, inserters=options.inserters,
        is_traced=not options.untraced,
    )  # fmt: skip
    again = f"MINUTES={plan.minutes:g} SEED={plan.seed}"
    if options.precision is not None:
        plan, again = replace(plan, precisions=(options.precision,)), f"{again} PRECISION={options.precision}"
    _print(f"Seed {plan.seed}: the same faults again by make soak {again}")
    try:
        ended = soak(_print, plan, folder)
    finally:
        if options.keep is not None:
            shutil.copytree(folder / "shared", options.keep, dirs_exist_ok=True)
    for line in lines(ended):
        _print(line)
    for problem in ended.problems[:SHOWN]:
        say(problem)
    if len(ended.problems) > SHOWN:
        say(f"and {len(ended.problems) - SHOWN} more")
    return 1 if ended.problems else 0


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what it prints is what it is for


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Runs inserters and processors on an emulator of its own, kills and disturbs them at random, and "
        "judges how every task ended.",
    )
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="of inserting and of faults (5)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20), help="of the faults")
    parser.add_argument("--precision", choices=["tick", "second"], help="of all deployments (now one, now the other)")
    parser.add_argument("--processors", type=int, choices=range(1, 17), default=3, metavar="N", help="processes (3)")
    parser.add_argument("--inserters", type=int, choices=range(1, 17), default=2, metavar="N", help="processes (2)")
    parser.add_argument("--untraced", action="store_true", help="note no requests, and replay none")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the journal and the log there")
    return parser.parse_args(arguments)


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text} is not a number of minutes above 0, up to a day")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
