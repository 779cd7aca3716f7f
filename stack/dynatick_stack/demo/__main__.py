"""`python -m dynatick_stack.demo`: exit code 0 if all went as expected, 1 if not, 130 if it was interrupted."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from dynatick_stack.scratch import run_in_scratch, say


def main(arguments: list[str] | None = None) -> int:
    return run_in_scratch("demo", partial(_run, batch=_options(arguments).batch))


def _run(folder: Path, *, batch: Path | None) -> int:
    from rich.console import Console

    from dynatick_stack.demo.batch import BATCH
    from dynatick_stack.demo.run import demo

    console = Console()
    if not console.is_terminal:
        console = Console(width=180)  # a file has no width: no line shall be cut there
    problems = demo(console, batch_file=batch or BATCH, state_dir=folder / "local")
    if problems:
        say(f"{len(problems)} expectations are not met:")
        for problem in problems:
            say(f"  {problem}")
    return 1 if problems else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dynatick_stack.demo",
        description="Runs a mixed batch of tasks through real ticks on a local stack of its own.",
    )
    parser.add_argument("--batch", type=Path, metavar="FILE", help="another batch file, in the same form")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
