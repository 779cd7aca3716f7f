"""The generated parts of each page, by their names."""

from collections.abc import Callable, Mapping

from dynatick.engine.counts import COUNTERS
from dynatick_stack.markdown import table
from dynatick_stack.reference import commands, payloads, python, template_tables
from dynatick_stack.template import ROOT

FOLDER = ROOT / "docs" / "reference"


def _counts() -> str:
    return table(
        ["Metric", "Unit", "What it counts"],
        [(f"`{one.metric}`", "Count", one.meaning) for one in COUNTERS if one.metric is not None],
    )


PARTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "actions.md": payloads.parts,
    "cli.md": commands.parts,
    "metrics.md": lambda: {"counts": _counts(), "alarms": template_tables.alarms()},
    "parameters.md": lambda: {"parameters": template_tables.parameters(), "outputs": template_tables.outputs()},
    "python.md": python.parts,
}
