"""What makes a page usable by everyone: the violations that axe finds on it, and where Tab goes."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
MAX_STOPS = 60

_CONTROLS = """[...document.querySelectorAll('a[href], button, input, select, textarea, summary')]
    .filter(node => node.checkVisibility() && !node.disabled && node.tabIndex >= 0).length"""
_FOCUS = """() => {
    const node = document.activeElement;
    if (!node || node === document.body) return null;
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    return {
        marked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1
            || node.type === 'datetime-local'  // the browser marks the part of it that has the focus
            || node.matches('svg a') && getComputedStyle(node.querySelector('rect')).stroke !== 'none',
        seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight,
        html: node.outerHTML.slice(0, 120),
    };
}"""


def violations(page: Page, *rules: str) -> list[str]:
    """The violations of WCAG 2.2 A and AA, or of these rules of axe: rule, what it wants, and the elements."""
    only = {"type": "rule", "values": list(rules)} if rules else {"type": "tag", "values": WCAG}
    found = Axe().run(page, options={"runOnly": only}).response
    assert found["passes"] or rules, "axe has checked nothing"
    return [
        f"{one['id']}: {one['help']}\n"
        + "\n".join(f"    {node['html'][:200]}  {node['failureSummary']}" for node in one["nodes"][:5])
        for one in found["violations"]
    ]


def tab_through(page: Page) -> None:
    """Asserts that Tab comes to one control after another, and that each is marked then and in sight."""
    wanted = page.evaluate(_CONTROLS)
    assert wanted >= 10
    stops: list[str] = []
    for _ in range(min(wanted, MAX_STOPS)):
        page.keyboard.press("Tab")
        focus = page.evaluate(_FOCUS)
        assert focus is not None, f"after {stops[-1:]} the focus is nowhere"
        assert focus["marked"] and focus["seen"], focus["html"]
        stops.append(focus["html"])
    assert len(set(stops)) > 8
