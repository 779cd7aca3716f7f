"""The command line `dynatick`, by the soak's clock: python -m tests.soak.commands task import FILE."""

from __future__ import annotations

import os
import sys

from tests.sandbox.folder import SharedFolder
from tests.sandbox.seam import Seam
from tests.sandbox.trace import Tracer
from tests.sandbox.watch import Watch

from dynatick.cli import run
from dynatick.cli.session import Session


def main() -> int:
    folder = SharedFolder.from_env(os.environ)
    clock = folder.clock
    Session.clock = lambda self: clock()  # type: ignore[method-assign]
    seam = Seam(tracer=Tracer(folder, os.environ["DYNATICK_TABLE"], is_outside=True))
    Watch(folder, seam)
    with seam.installed():
        return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
