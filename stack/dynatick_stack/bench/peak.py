"""The most memory that a process has had."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_rss_bytes() -> int:
    """Returns the peak memory of this process. (Linux's ru_maxrss begins with that of the process before it.)"""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
