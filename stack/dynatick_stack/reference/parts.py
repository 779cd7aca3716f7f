"""The generated parts of each page, by their names."""

from collections.abc import Callable, Mapping

from dynatick_stack.reference import commands, payloads, template_tables
from dynatick_stack.template import ROOT

FOLDER = ROOT / "docs" / "reference"

PARTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "actions.md": payloads.parts,
    "cli.md": commands.parts,
    "metrics.md": lambda: {"alarms": template_tables.alarms()},
    "parameters.md": lambda: {"parameters": template_tables.parameters(), "outputs": template_tables.outputs()},
}
