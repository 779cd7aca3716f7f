"""`python -m dynatick_stack.demo`: exit code 0 if all went as expected, 1 if not, 130 if it was interrupted."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import uuid
from pathlib import Path
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str] | None = None) -> int:
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _run_and_clean_up(_options(arguments).batch)
    except KeyboardInterrupt:
        _say("Interrupted; nothing is left running")
        return INTERRUPTED


def _run_and_clean_up(batch: Path | None) -> int:
    # Named before it is made, so that there is no moment in which it is there and unknown.
    folder = Path(tempfile.gettempdir(), f"dynatick-demo-{uuid.uuid4().hex[:12]}").resolve()
    # Twice: the interruption may come in the midst of cleaning up. A second one does not come.
    try:
        try:
            return _run(folder, batch)
        finally:
            _clean_up(folder)
    finally:
        _clean_up(folder)


def _run(folder: Path, batch: Path | None) -> int:
    # Imported here, so that an interruption during the imports ends as any other does.
    from botocore.exceptions import BotoCoreError, ClientError
    from rich.console import Console

    from dynatick.errors import DynatickError
    from dynatick_stack.demo.batch import BATCH
    from dynatick_stack.demo.run import demo
    from dynatick_stack.errors import StackError

    console = Console()
    if not console.is_terminal:
        console = Console(width=180)  # a file has no width: no line shall be cut there
    folder.mkdir(mode=0o700)
    try:
        problems = demo(console, batch_file=batch or BATCH, state_dir=folder / "local")
    except StackError as error:
        _say(f"Error: {error}")
        return error.exit_code
    except (DynatickError, BotoCoreError, ClientError) as error:
        _say(f"Error: the local stack doesn't do as asked: {error}")
        return 1
    if problems:
        _say(f"{len(problems)} expectations are not met:")
        for problem in problems:
            _say(f"  {problem}")
    return 1 if problems else 0


def _clean_up(folder: Path) -> None:
    if not folder.exists():
        return
    from dynatick_stack import local

    local.down(state_dir=folder / "local")
    shutil.rmtree(folder, ignore_errors=True)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    # Only once: what follows is cleaning up.
    for number in SIGNALS:
        signal.signal(number, _is_cleaning_up)
    raise KeyboardInterrupt


def _is_cleaning_up(_number: int, _frame: FrameType | None) -> None:
    """Takes a further signal. Were they ignored instead, children would inherit that."""


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dynatick_stack.demo",
        description="Runs a mixed batch of tasks through real ticks on a local stack of its own.",
    )
    parser.add_argument("--batch", type=Path, metavar="FILE", help="another batch file, in the same form")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
