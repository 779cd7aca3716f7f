"""Draws docs/images/*.svg from docs/benchmark.json. Needs matplotlib, which `make bench WRITE=1` installs.

python -m dynatick_stack.bench.plots
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

from dynatick_stack.bench import cost
from dynatick_stack.bench.documents import figures
from dynatick_stack.template import ROOT

matplotlib.use("svg")

from matplotlib import pyplot as plt  # the backend is chosen before

IMAGES = ROOT / "docs" / "images"
OURS, OTHERS, FLOOR = "#1f6f8b", "#b0b7bd", "#d9a441"
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: small files, that can be read aloud and searched
    "svg.hashsalt": "dynatick",  # the same figures make the same file
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}


def main() -> None:
    """Draws all of them."""
    IMAGES.mkdir(exist_ok=True)
    found = figures()
    with matplotlib.rc_context(_STYLE):
        for name, draw in (("cpu", _cpu), ("growth", _growth), ("cost", _cost)):
            figure = draw(found)
            _save(figure, IMAGES / f"{name}.svg")
            plt.close(figure)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "Dynatick"})
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


def _cpu(found: Mapping[str, Any]) -> Any:
    single = found["cpu_us_single_writes"]
    bars = {
        **{f"single writes, {threads} thread{'s' * (threads != '1')}": us for threads, us in single.items()},
        "Dynatick": found["cpu_us_per_task"],
        "raw HTTP (floor)": found["cpu_us_raw_http"],
    }
    colours = [OURS if name == "Dynatick" else FLOOR if "floor" in name else OTHERS for name in bars]
    figure, axes = plt.subplots(figsize=(7, 2.4))
    drawn = axes.barh(list(bars), list(bars.values()), color=colours)
    axes.bar_label(drawn, fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("CPU of the processor, microseconds a task")
    return figure


def _growth(found: Mapping[str, Any]) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8))
    sizes = [one["pending"] for one in found["growth_pending"]]
    for name, colour in (("insert", OTHERS), ("tick", OURS)):
        left.plot(sizes, [one[name]["ms"] for one in found["growth_pending"]], "o-", color=colour, label=name)
    left.set_xscale("log")
    left.set_ylim(bottom=0)
    left.set_xlabel("tasks pending elsewhere")
    left.set_ylabel("milliseconds a task")
    left.legend(frameon=False)
    shards = [str(one["shards"]) for one in found["growth_shards"]]
    rates = [one["tasks"] / one["seconds"] for one in found["growth_shards"]]
    drawn = right.bar(shards, rates, color=OURS, width=0.6)
    right.bar_label(drawn, fmt="{:,.0f}", padding=2)
    right.set_xlabel("shards, a process each")
    right.set_ylabel("tasks a second")
    return figure


def _cost(found: Mapping[str, Any]) -> Any:
    tasks = [10**n for n in range(4, 9)]
    lines = {
        "Dynatick, on demand": ([cost.month(found, n) for n in tasks], OURS, "-"),
        "Dynatick, provisioned": ([cost.month(found, n, by_provisioned=True) for n in tasks], OURS, "--"),
        "EventBridge Scheduler": ([cost.eventbridge_month(n, with_outcomes=False) for n in tasks], FLOOR, "-"),
        "… keeping outcomes": ([cost.eventbridge_month(n, with_outcomes=True) for n in tasks], FLOOR, "--"),
    }
    figure, axes = plt.subplots(figsize=(7, 3))
    for name, (dollars, colour, style) in lines.items():
        axes.plot(tasks, dollars, style, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("tasks a month")
    axes.set_ylabel("dollars a month")
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
