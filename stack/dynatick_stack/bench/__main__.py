"""`python -m dynatick_stack.bench [BENCHMARK] [--tasks N] [--quick] [--write]`"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    # Instead of the caller's, for endpoints on this machine. The SDK reads the environment when it is imported, and
    # processes that are started later inherit it.
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_SESSION_TOKEN="")
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
    from dynatick_stack.bench import burst, costs, gap, lateness

    with_tasks = {"burst": burst.burst, "memory": burst.memory, "lateness": lateness.lateness}
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench", description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=("costs", "gap", *with_tasks), default="costs")
    parser.add_argument("--tasks", type=int, help="instead of the benchmark's own number: " + ", ".join(with_tasks))
    parser.add_argument("--quick", action="store_true", help="costs: smaller numbers, in less than a minute")
    parser.add_argument("--write", action="store_true", help="costs: write docs/benchmark.json and the docs' tables")
    given = parser.parse_args()
    if given.benchmark == "costs":
        return costs.costs(quick=given.quick, write=given.write)
    if given.benchmark == "gap":
        return gap.gap()
    benchmark = with_tasks[given.benchmark]
    return benchmark() if given.tasks is None else benchmark(given.tasks)


if __name__ == "__main__":
    sys.exit(main())
