"""Programs that work in a folder of their own with a local stack, and leave nothing behind, however they end.

This module imports little, so that an interruption during the imports of what it runs ends as any other does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from dynatick_stack.interruptions import begin_to_clean_up, ends_when_interrupted

INTERRUPTED = 130


def run_in_scratch(name: str, work: Callable[[Path], int]) -> int:
    """Returns what ``work`` does, given a new folder, in which ``local`` is the local stack's. Interrupted, it ends the
    program with 130."""
    # Named before it is made, so that there is no moment in which it is there and unknown.
    folder = Path(tempfile.gettempdir(), f"dynatick-{name}-{uuid.uuid4().hex[:12]}").resolve()
    with ends_when_interrupted("Interrupted; nothing is left running", INTERRUPTED):
        # Twice: the interruption may come in the midst of cleaning up. A second one does not come.
        try:
            try:
                return _run(folder, work)
            finally:
                _clean_up(folder)
        finally:
            _clean_up(folder)


def say(text: str) -> None:
    print(text, file=sys.stderr)


def _run(folder: Path, work: Callable[[Path], int]) -> int:
    from botocore.exceptions import BotoCoreError, ClientError

    from dynatick.errors import DynatickError
    from dynatick_stack.errors import StackError

    folder.mkdir(mode=0o700)
    try:
        return work(folder)
    except StackError as error:
        say(f"Error: {error}")
        return error.exit_code
    except (DynatickError, BotoCoreError, ClientError) as error:
        say(f"Error: the local stack doesn't do as asked: {error}")
        return 1


def _clean_up(folder: Path) -> None:
    begin_to_clean_up()
    if not folder.exists():
        return
    from dynatick_stack import local

    local.down(state_dir=folder / "local")
    shutil.rmtree(folder, ignore_errors=True)
