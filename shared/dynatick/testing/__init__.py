"""For the tests of handlers: an installation in memory, on a clock that tests move. pytest has it as a fixture.

The names below are imported when they are first used: pytest imports this package at the start of every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynatick.domain.occurrences import Overdue
    from dynatick.testing.executions import Execution, Waiting
    from dynatick.testing.virtual_installation import VirtualInstallation

_HOMES = {
    "Execution": "dynatick.testing.executions",
    "Overdue": "dynatick.domain.occurrences",
    "VirtualInstallation": "dynatick.testing.virtual_installation",
    "Waiting": "dynatick.testing.executions",
}

__all__ = ["Execution", "Overdue", "VirtualInstallation", "Waiting"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dynatick.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
