"""The violations that axe finds on a page."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def violations(page: Page) -> list[str]:
    """The violations of WCAG 2.2 A and AA: rule, what it wants, and the elements."""
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": WCAG}}).response
    assert found["passes"], "axe has checked nothing"
    return [
        f"{one['id']}: {one['help']}\n"
        + "\n".join(f"    {node['html'][:200]}  {node['failureSummary']}" for node in one["nodes"][:5])
        for one in found["violations"]
    ]
