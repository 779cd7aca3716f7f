"""The command line `dynatick`, by the soak's clock: python -m dynatick_stack.soak.commands task import FILE."""

from __future__ import annotations

import os
import sys

from dynatick.cli import run
from dynatick.cli.session import Session
from dynatick_stack.sandbox.seam import Seam
from dynatick_stack.soak.surroundings import Surroundings
from dynatick_stack.soak.watch import Watch


def main() -> int:
    here = Surroundings.from_env(os.environ)
    clock = here.clock
    Session.clock = lambda self: clock()  # type: ignore[method-assign]
    seam = Seam()
    Watch(here, seam)
    with seam.installed():
        return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
