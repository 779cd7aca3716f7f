"""A program of the emulator's environment: the emulator, for programs of this machine only.

By itself it answers the pages of any origin, and runs code for them. The first argument is the file of
``dynatick.ui.loopback``: that environment has neither ``dynatick`` nor ``dynatick_stack``. If what happens is to be
recorded, two more follow: the file of ``dynatick_stack.emulator_recording``, and the one to write.
"""

import runpy
import sys

from ministack import app as emulator

if __name__ == "__main__":
    guard = runpy.run_path(sys.argv.pop(1))["Loopback"]
    if len(sys.argv) > 1:
        record = runpy.run_path(sys.argv.pop(1))["record"]
        emulator.app = record(emulator.app, sys.argv.pop(1))
    emulator.app = guard(emulator.app)
    emulator.main()
