"""The keyboard can do all that a mouse can."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tests.ui.addresses import ADDRESSES, task
from tests.ui.browser import Person
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served

_FOCUS = """() => {
    const node = document.activeElement;
    if (!node || node === document.body) return null;
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    return {
        testId: node.dataset.testid || null,
        marked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1
            || node.type === 'datetime-local'  // the browser marks the part of it that has the focus
            || node.matches('svg a') && getComputedStyle(node.querySelector('rect')).stroke !== 'none',
        seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight,
        html: node.outerHTML.slice(0, 120),
    };
}"""
MAX_STOPS = 400


def tab_to(person: Person, test_id: str) -> None:
    """Presses Tab until the element has the focus."""
    for _ in range(MAX_STOPS):
        person.page.keyboard.press("Tab")
        focus = person.page.evaluate(_FOCUS)
        if focus is not None and focus["testId"] == test_id:
            return
    raise AssertionError(f"Tab never comes to {test_id}")


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_tab_comes_to_every_control_and_shows_where_it_is(small: Served, open_tab: OpenTab, address: str) -> None:
    person = open_tab(small, address)
    wanted = person.page.evaluate(
        """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]
            .filter(node => node.checkVisibility() && !node.disabled && node.tabIndex >= 0).length"""
    )
    assert wanted >= 10
    stops: list[str] = []
    for _ in range(min(wanted, 60)):
        person.page.keyboard.press("Tab")
        focus = person.page.evaluate(_FOCUS)
        assert focus is not None, f"after {stops[-1:]} the focus is nowhere"
        assert focus["marked"] and focus["seen"], focus["html"]
        stops.append(focus["html"])
    assert len(set(stops)) > 8


def test_the_first_stop_skips_to_the_content(small: Served, open_tab: OpenTab) -> None:
    page = open_tab(small, "/ticks").page
    for key in ("Tab", "Enter", "Tab"):
        page.keyboard.press(key)
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_a_failed_group_is_redriven_by_keyboard_alone(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/")
    tab_to(person, "nav-failures")
    person.page.keyboard.press("Enter")
    expect(person.by("failure-group").first).to_be_visible()
    tab_to(person, "redrive-all")
    group = person.page.evaluate("document.activeElement.closest('[data-testid=failure-group]').dataset.count")
    person.page.keyboard.press("Enter")
    expect(person.by("dry-run-count")).to_have_text(group)
    if person.page.evaluate("document.activeElement.dataset.testid") != "confirm":
        tab_to(person, "confirm")
    person.page.keyboard.press("Enter")
    expect(person.by("job")).to_have_attribute("data-state", "done")
    assert person.log.clicks == 0


def test_a_question_takes_the_focus_and_escape_gives_it_back(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, task("table-1"))
    tab_to(person, "cancel")
    person.page.keyboard.press("Enter")
    expect(person.by("confirm-cancel")).to_be_visible()
    assert person.page.evaluate("!!document.activeElement.closest('details[open]')")
    person.page.keyboard.press("Escape")
    expect(person.by("confirm-cancel")).to_be_hidden()
    expect(person.by("cancel")).to_be_focused()
    assert own.client.get("table-1").status == "scheduled"
