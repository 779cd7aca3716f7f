"""`make bench`, as `python -m dynatick_stack.bench [BENCHMARK] [--tasks N] [--write]`"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from dynatick_stack.template import ROOT

BENCHMARKS = ("costs", "quick", "burst", "memory", "lateness", "gap", "keys", "traces", "ui")
WITH_TASKS = ("burst", "memory", "lateness")


def main(arguments: list[str] | None = None) -> int:
    given = _arguments(arguments)
    # Instead of the caller's, for endpoints on this machine. The SDK reads the environment when it is imported, and
    # processes that are started later inherit it.
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_SESSION_TOKEN="")
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
    from dynatick_stack.bench import burst, costs, gap, lateness

    if given.benchmark in WITH_TASKS:
        benchmark = {"burst": burst.burst, "memory": burst.memory, "lateness": lateness.lateness}[given.benchmark]
        return benchmark() if given.tasks is None else benchmark(given.tasks)
    if given.benchmark == "gap":
        return gap.gap()
    if given.benchmark == "keys":
        from dynatick_stack.bench.keys import keys

        return keys()
    if given.benchmark == "traces":
        from dynatick_stack.bench.traces import traces

        return traces()
    if given.benchmark == "ui":  # in a browser, by the fixtures of its tests
        return subprocess.call([sys.executable, "-m", "pytest", "-q", "-s", "-m", "long", "tests/ui"], cwd=ROOT)
    return costs.costs(quick=given.benchmark == "quick", write=given.write)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench", description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=BENCHMARKS, default="costs")
    parser.add_argument("--tasks", type=int, help="instead of the benchmark's own number: " + ", ".join(WITH_TASKS))
    parser.add_argument("--write", action="store_true", help="costs: write docs/benchmark.json and the docs' tables")
    given = parser.parse_args(arguments)
    if given.write and given.benchmark != "costs":
        parser.error(f"only costs are written into docs/, not {given.benchmark}")
    if given.tasks is not None and given.benchmark not in WITH_TASKS:
        parser.error(f"{given.benchmark} has no --tasks")
    return given


if __name__ == "__main__":
    sys.exit(main())
