"""The figures that were measured, under their names; and arithmetic of measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynatick_stack.bench.cpu import Ratios
    from dynatick_stack.bench.drainer import Drained
    from dynatick_stack.bench.units import Idle, Life


class Figures:
    """What was measured, by name, as the JSON object has it."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = dict(values or {})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def to_json(self) -> dict[str, Any]:
        return dict(self._values)

    def take(self, name: str, value: object) -> None:
        """Takes in a figure as it is."""
        self._values[name] = value

    def take_units(self, timed: tuple[Life, Life], untimed: tuple[Life, Life], idle: Idle) -> None:
        """A task's cost in the engine's units, exact; each life twice, the second with fewer tasks.

        Write units are those that a task more adds; what the ticks write on their own rows is told beside them. Reads
        and calls are all that there were, the ticks' own included.
        """
        (life, fewer), (raw_life, fewer_raw) = timed, untimed
        self._values |= {
            "wcu_per_task": round(life.marginal(fewer, "write_units"), 4),
            "wcu_per_untimed_task": round(raw_life.marginal(fewer_raw, "write_units"), 4),
            "wcu_per_bucket": round(life.fixed(fewer, "write_units"), 4),
            "rcu_per_task": round(life.per_task("read_units"), 4),
            "rcu_per_untimed_task": round(raw_life.per_task("read_units"), 4),
            "api_calls_per_task": round(life.per_task("calls"), 4),
            "api_calls_per_untimed_task": round(raw_life.per_task("calls"), 4),
            "statements_per_task": round(life.per_task("statements"), 4),
            "scheduler_batches_per_task": round(life.scheduler_batches / life.tasks, 4),
            "scheduler_batches_per_untimed_task": round(raw_life.scheduler_batches / raw_life.tasks, 4),
            "scheduler_cpu_us_per_task": round(life.scheduler_cpu_seconds / life.tasks * 1e6, 1),
            "scheduler_cpu_us_per_untimed_task": round(raw_life.scheduler_cpu_seconds / raw_life.tasks * 1e6, 1),
            "bytes_per_row": life.bytes_per_row,
            "bytes_per_entry": life.bytes_per_entry,
            "idle_tick_reads": idle.reads,
            "idle_tick_writes": idle.writes,
            "idle_tick_rcu": round(idle.total.read_units / idle.ticks, 2),
            "idle_tick_wcu": round(idle.total.write_units / idle.ticks, 2),
            "unit_parts": {
                part: {
                    operation: {"calls": count.calls, "read_units": count.read_units, "write_units": count.write_units}
                    for operation, count in counts.by_operation.items()
                }
                for part, counts in (
                    ("insert", life.insert), ("scheduler", life.scheduler), ("processor", life.processor),
                )
            },
            "unit_tasks": life.tasks,
        }  # fmt: skip

    def take_ratios(self, ratios: Ratios) -> None:
        """CPU time, ours beside the baselines'."""
        self._values |= {
            "cpu_us_per_task": round(ratios.cpu_us_per_task, 1),
            "cpu_ratio_single_writes": round(ratios.to_single_writes, 4),
            "cpu_ratio_raw_http": round(ratios.to_raw, 2),
            "cpu_us_single_writes": {str(threads): round(ratios.single_us(threads), 1) for threads in ratios.threads},
            "single_writes_per_s": {str(threads): round(ratios.single_per_s(threads)) for threads in ratios.threads},
            "cpu_us_raw_http": round(ratios.raw_us, 1),
            "tasks_per_s": round(ratios.tasks_per_s),
        }

    def take_inserts(self, found: tuple[float, float]) -> None:
        """Inserts a second by the client, and its CPU microseconds by task."""
        self._values |= {"insert_many_per_s": round(found[0]), "cpu_us_per_insert": round(found[1], 1)}

    def take_lateness(self, drained: Drained) -> None:
        """Milliseconds from the beginning of the invocation to the beginning of a task."""
        self._values["lateness_ms"] = {
            "first": round(drained.first_ms),
            "p50": round(drained.p50_ms),
            "p99": round(drained.p99_ms),
            "last": round(drained.last_ms),
        }

    def take_memory(self, small: Drained, large: Drained) -> None:
        """Of processes that drain a small and a large bucket."""
        self._values |= {
            "peak_rss_ratio": round(large.peak_rss_bytes / small.peak_rss_bytes, 3),
            "peak_rss_mb": {f"{one.tasks}": round(one.peak_rss_bytes / 2**20, 1) for one in (small, large)},
        }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed. ``ordered``: ascending, at least one."""
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
