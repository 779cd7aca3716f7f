"""`python -m dynatick_stack.bench [--quick] [--write]`: tables, then one line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import UTC, datetime
from typing import Any

from dynatick_stack.bench.credentials import use_test_credentials


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers, in less than a minute")
    parser.add_argument("--write", action="store_true", help="write docs/benchmark.json and docs/performance.md")
    options = parser.parse_args()
    use_test_credentials()

    # The SDK reads the environment when it is imported.
    from dynatick_stack.bench import documents
    from dynatick_stack.bench.figures import FULL, QUICK, measure

    figures: dict[str, Any] = {
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **measure(QUICK if options.quick else FULL),
    }
    for name in documents.TABLES:
        print(documents.table(name, figures), end="\n\n")
    print(json.dumps(figures))
    if options.write:
        documents.DATA.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        documents.write(figures)


if __name__ == "__main__":
    main()
