"""All pages, by file name."""

from collections.abc import Callable, Mapping

from dynatick.api.document import text as openapi
from dynatick_stack.reference import actions, attributes, commands, metrics, parameters
from dynatick_stack.template import ROOT

FOLDER = ROOT / "docs" / "reference"

_PAGES: Mapping[str, Callable[[], str]] = {
    "actions.md": actions.page,
    "attributes.md": attributes.page,
    "cli.md": commands.page_text,
    "metrics.md": metrics.page,
    "openapi.json": openapi,
    "parameters.md": parameters.page,
}


def pages() -> dict[str, str]:
    """The text of each page, as code and template are now."""
    return {name: make() for name, make in _PAGES.items()}
