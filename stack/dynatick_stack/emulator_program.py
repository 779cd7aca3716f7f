"""A program of the emulator's environment: the emulator, for programs of this machine only.

By itself it answers the pages of any origin, and runs code for them. The argument is the file of
``dynatick.ui.loopback``: that environment has neither ``dynatick`` nor ``dynatick_stack``.
"""

import runpy
import sys

from ministack import app as emulator

if __name__ == "__main__":
    guard = runpy.run_path(sys.argv.pop(1))["Loopback"]
    emulator.app = guard(emulator.app)
    emulator.main()
