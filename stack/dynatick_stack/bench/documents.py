"""Writes the tables of docs/performance.md and docs/cost.md from docs/benchmark.json.

    python -m dynatick_stack.bench.documents

A table stands between `<!-- bench: NAME -->` and `<!-- /bench -->`. Tests hold that the documents are up to date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dynatick_stack.bench import cost
from dynatick_stack.bench.report import BUDGETS
from dynatick_stack.template import ROOT, load

DATA = ROOT / "docs" / "benchmark.json"
DOCUMENTS = (ROOT / "docs" / "performance.md", ROOT / "docs" / "cost.md")
_PART = re.compile(r"(<!-- bench: ([\w-]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)

Figures = Mapping[str, Any]


def rendered(text: str, figures: Figures) -> str:
    """A document with its tables as the figures make them. Raises KeyError for a table that nobody knows."""
    return _PART.sub(lambda found: f"{found[1]}\n{_TABLES[found[2]](figures)}\n\n{found[3]}", text)


def figures() -> dict[str, Any]:
    """As they were measured last."""
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Writes the tables afresh."""
    for path in DOCUMENTS:
        path.write_text(rendered(path.read_text(encoding="utf-8"), figures()), encoding="utf-8")


def _where(found: Figures) -> str:
    return (
        f"Measured on {found['measured_at'][:10]}, {found['machine']}, Python {found['python']}, "
        f"endpoint: {found['endpoint']}."
    )


def _budgets(found: Figures) -> str:
    late = found["lateness_ms"]
    imports = found["import_ms"]
    rows = [
        ("write units of a task, time given, insert to outcome", f"{found['wcu_per_task']:g}", "wcu_per_task"),
        ("write units of a raw row without a time", f"{found['wcu_per_untimed_task']:g}", "wcu_per_untimed_task"),
        ("read units of a task, second looks included", f"{found['rcu_per_task']:.3f}", "rcu_per_task"),
        ("API calls of a task", f"{found['api_calls_per_task']:.3f}", ""),
        ("statements of a task", f"{found['statements_per_task']:.3f}", ""),
        ("read calls of an idle tick", f"{found['idle_tick_reads']}", "idle_tick_reads"),
        ("writes of an idle tick", f"{found['idle_tick_writes']}", "idle_tick_writes"),
        (
            "CPU of a task, against single writes",
            f"1/{1 / found['cpu_ratio_single_writes']:.1f}",
            "cpu_ratio_single_writes",
        ),
        ("CPU of a task, against raw HTTP", f"{found['cpu_ratio_raw_http']:.1f} times", ""),
        ("tasks a second, one process", f"{found['tasks_per_s']:,}", ""),
        ("inserts a second, one client", f"{found['insert_many_per_s']:,}", ""),
        (
            "bucket of 10,000: milliseconds to the first task, half, 99 %, the last",
            f"{late['first']:,} / {late['p50']:,} / {late['p99']:,} / {late['last']:,}",
            "lateness_ms",
        ),
        ("memory: bucket of 100,000 against 1,000", f"{found['peak_rss_ratio']:.2f} times", "peak_rss_ratio"),
        *(
            (f"import of the {name}, over boto3 with a client", f"{imports[name] - imports['boto3_client']:+.0f} ms",
             "import_ms")
            for name in imports if not name.startswith("boto3")
        ),
    ]  # fmt: skip
    table = _table(("What", "Measured", "Budget"), [(a, b, BUDGETS.get(c, "")) for a, b, c in rows], right=(1,))
    return f"{_where(found)}\n\n{table}"


def _cpu(found: Figures) -> str:
    single = found["cpu_us_single_writes"]
    rows = [
        ("Dynatick's processor, 16 threads", f"{found['cpu_us_per_task']:,.0f}", f"{found['tasks_per_s']:,}"),
        *(
            (f"single writes, {threads} thread{'s' if threads != '1' else ''}", f"{us:,.0f}",
             f"{found['single_writes_per_s'][threads]:,}")
            for threads, us in single.items()
        ),
        ("raw HTTP, one connection", f"{found['cpu_us_raw_http']:,.0f}", ""),
    ]  # fmt: skip
    return _table(("Way", "CPU µs a task", "tasks a second"), rows, right=(1, 2))


def _units(found: Figures) -> str:
    tasks = found["unit_tasks"]
    rows = [
        (part, operation, f"{count['calls'] / tasks:.4f}", f"{count['write_units'] / tasks:.4f}",
         f"{count['read_units'] / tasks:.4f}")
        for part, operations in found["unit_parts"].items()
        for operation, count in operations.items()
    ]  # fmt: skip
    columns = ("Who", "Call", "calls a task", "write units", "read units")
    return f"{tasks:,} tasks in one bucket:\n\n{_table(columns, rows, right=(2, 3, 4))}"


def _pending(found: Figures) -> str:
    rows = []
    for one in found["growth_pending"]:
        insert, tick, page = one["insert"], one["tick"], one["history"]
        rows.append(
            (
                f"{one['pending']:,}",
                f"{insert['calls']:.3f} / {insert['write_units']:g} / {insert['ms']:.2f}",
                f"{tick['calls']:.3f} / {tick['write_units']:.3f} / {tick['read_units']:.3f} / {tick['ms']:.2f}",
                f"{page['calls']:.0f} / {page['read_units']:g} / {page['ms']:.1f}",
            )
        )
    columns = (
        "Pending elsewhere",
        "insert a task: calls / write units / ms",
        "tick, by task: calls / write units / read units / ms",
        "page of history: calls / read units / ms",
    )
    return _table(columns, rows, right=(0, 1, 2, 3))


def _shards(found: Figures) -> str:
    rows = [
        (
            str(one["shards"]),
            f"{one['tasks'] / one['seconds']:,.0f}",
            f"{one['cpu_seconds'] / one['tasks'] * 1e6:,.0f}",
            f"{one['engine_busy']:.0%}",
        )
        for one in found["growth_shards"]
    ]
    columns = ("Shards, and processes", "tasks a second", "CPU µs a task", "endpoint's one CPU busy")
    return _table(columns, rows, right=(0, 1, 2, 3))


def _history(found: Figures) -> str:
    rows = []
    for one in found["growth_history"]:
        first, whole = one["first"], one["whole"]
        rows.append(
            (
                f"`{one['status']}`" if one["status"] else "all",
                f"{one['matching']:,}",
                f"{first['calls']:.0f} / {first['read_units']:g} / {first['ms']:.0f}",
                f"{whole['calls']:,.0f} / {whole['read_units']:,g} / {whole['ms']:,.0f}",
            )
        )
    columns = ("Filter", "tasks", "first page of 100: calls / read units / ms", "all of them: calls / read units / ms")
    return _table(columns, rows, right=(1, 2, 3))


def _million(found: Figures) -> str:
    timed, raw, steady = cost.task(found), cost.task(found, untimed=True), cost.provisioned(found)
    rows = []
    for name, what in (
        ("writes", "DynamoDB writes"),
        ("reads", "DynamoDB reads"),
        ("processor", "Lambda, processor"),
        ("scheduler", "Lambda, scheduler"),
        ("storage", "storage for 30 days"),
        ("total", "**together**"),
    ):
        rows.append((what, *(_dollars(getattr(one, name) * cost.MILLION) for one in (timed, raw, steady))))
    columns = ("A million tasks", "with a time, on demand", "raw, without one", "with a time, provisioned")
    return _table(columns, rows, right=(1, 2, 3))


def _idle(found: Figures) -> str:
    rows = []
    for minutes, shards in ((1, 1), (1, 4), (5, 1), (15, 1), (60, 1)):
        one = cost.idle_month(found, tick_minutes=minutes, shards=shards)
        rows.append(
            (
                str(minutes),
                str(shards),
                _dollars(one.writes),
                _dollars(one.reads),
                _dollars(one.lambda_time + one.lambda_requests),
                _dollars(one.total),
            )
        )
    columns = ("TickMinutes", "ShardCount", "writes", "reads", "Lambda", "a month")
    return _table(columns, rows, right=(0, 1, 2, 3, 4, 5))


def _beside(found: Figures) -> str:
    rows = []
    for tasks in (10_000, 100_000, cost.MILLION, 10 * cost.MILLION, 100 * cost.MILLION):
        rows.append(
            (
                f"{tasks:,}",
                _dollars(cost.month(found, tasks)),
                _dollars(cost.month(found, tasks, by_provisioned=True)),
                _dollars(cost.eventbridge_month(tasks, with_outcomes=False)),
                _dollars(cost.eventbridge_month(tasks, with_outcomes=True)),
            )
        )
    columns = (
        "Tasks a month",
        "Dynatick, on demand",
        "Dynatick, provisioned",
        "EventBridge Scheduler and a function",
        "the same, keeping outcomes",
    )
    return _table(columns, rows, right=(0, 1, 2, 3, 4))


def _loads(found: Figures) -> str:
    rows = []
    for tasks in (10**5, 10**6, 10**7, 10**8):
        one = cost.load(found, tasks)
        rows.append(
            (
                f"{tasks:,}",
                f"{one.tasks_per_s:,.1f}",
                f"{one.write_units_per_s:,.0f}",
                f"{one.shards}",
                f"{one.cpus:,.2f}",
                f"{one.stored_tb:,.3g}",
                _dollars(one.on_demand_per_day),
                _dollars(one.provisioned_per_day),
            )
        )
    columns = (
        "Tasks a day", "a second", "write units a second", "shards", "CPUs", "TB for 30 days", "a day, on demand",
        "provisioned",
    )  # fmt: skip
    return _table(columns, rows, right=tuple(range(8)))


def _prices(_: Figures) -> str:
    prices = cost.PRICES
    rows = [
        ("DynamoDB, write request unit", f"${prices.write_unit * 1e6:g} a million"),
        ("DynamoDB, read request unit", f"${prices.read_unit * 1e6:g} a million"),
        ("DynamoDB, provisioned write capacity", f"${prices.write_capacity_hour:g} an hour"),
        ("DynamoDB, provisioned read capacity", f"${prices.read_capacity_hour:g} an hour"),
        ("DynamoDB, storage", f"${prices.storage_gb_month:g} a GB and month"),
        ("DynamoDB stream, read by Lambda; expiry by TTL", "free"),
        ("Lambda, arm64", f"${prices.lambda_gb_second:.10f} a GB-second".replace("0 a GB", " a GB")),
        ("Lambda, request", f"${prices.lambda_request * 1e6:.2f} a million"),
        ("EventBridge Scheduler", f"${prices.scheduler_invocation * 1e6:.2f} a million"),
        ("of these, a month", f"{prices.scheduler_free // 10**6} million free"),
        ("EventBridge scheduled rule", "free"),
    ]
    table = _table(("What", "Price"), rows, right=(1,))
    return f"Prices of {prices.region}, {prices.date}:\n\n{table}"


def _alarms(_: Figures) -> str:
    found = [one for one in load()["Resources"].values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    alarms = sum("Condition" not in one for one in found)  # the others are off by default
    return f"The template has {alarms} alarms."


def _dollars(amount: float) -> str:
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}" if amount >= 0.01 else f"${amount:,.4f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    line = ["---:" if n in right else "---" for n in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, line, *rows))


_TABLES: Mapping[str, Callable[[Figures], str]] = {
    "budgets": _budgets,
    "cpu": _cpu,
    "units": _units,
    "pending": _pending,
    "shards": _shards,
    "history": _history,
    "million": _million,
    "idle": _idle,
    "beside": _beside,
    "loads": _loads,
    "prices": _prices,
    "alarms": _alarms,
}


if __name__ == "__main__":
    main()
