"""`python -m dynatick_stack.demo`: exit code 0 if all went as expected, 1 if not, 130 if it was interrupted."""

from __future__ import annotations

import sys
from pathlib import Path

from dynatick_stack.scratch import run_in_scratch, say


def main() -> int:
    return run_in_scratch("demo", _run)


def _run(folder: Path) -> int:
    from dynatick_stack.demo.run import demo

    problems = demo(folder / "local")
    if problems:
        say(f"{len(problems)} expectations are not met:")
        for problem in problems:
            say(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
