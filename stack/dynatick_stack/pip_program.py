"""A program: pip, for another machine. ``--python-version`` and ``--platform`` choose its wheels only: a marker such as
``python_version >= "3.13"`` would still be decided for the interpreter that runs pip.

The first argument has the values of markers there, as JSON. It imports nothing of ``dynatick_stack``.
"""

import json
import runpy
import sys
from importlib import import_module
from typing import Any

if __name__ == "__main__":
    there = json.loads(sys.argv.pop(1))
    markers: Any = import_module("pip._vendor.packaging.markers")
    here = markers.default_environment
    markers.default_environment = lambda: {**here(), **there}
    if not all(markers.Marker(f'{name} == "{value}"').evaluate() for name, value in there.items()):
        sys.exit("this pip takes no other values of markers; use another version of it")
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
