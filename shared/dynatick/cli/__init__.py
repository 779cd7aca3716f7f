"""The command line, ``dynatick``. It needs the extra ``cli``; importing this module does not."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

_NEEDED = ("typer", "rich", "cron_descriptor")


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Carries out one command line and returns its exit code (``dynatick.cli.exit_code``)."""
    if not all(importlib.util.find_spec(name) for name in _NEEDED):
        print("error: the command line needs more packages: pip install 'dynatick[cli]'", file=sys.stderr)
        return 1
    from dynatick.cli.app import invoke

    return invoke(arguments)
