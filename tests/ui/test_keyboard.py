"""The keyboard can do all that a mouse can."""

from __future__ import annotations

from playwright.sync_api import expect
from tests.ui.addresses import task
from tests.ui.browser import Person
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served

_FOCUSED = "document.activeElement.dataset.testid"
MAX_STOPS = 400


def tab_to(person: Person, test_id: str) -> None:
    """Presses Tab until the element has the focus."""
    for _ in range(MAX_STOPS):
        person.page.keyboard.press("Tab")
        if person.page.evaluate(_FOCUSED) == test_id:
            return
    raise AssertionError(f"Tab never comes to {test_id}")


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
    if person.page.evaluate(_FOCUSED) != "confirm":
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
