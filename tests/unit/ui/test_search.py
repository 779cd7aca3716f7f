"""Search looks from now on in both directions, says through when, and never denies what it has not looked through."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import httpx2
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements, text_of

from dynatick.testing.virtual_installation import VirtualInstallation

_LOADS = re.compile(r'hx-get="([^"]+)" hx-trigger="load"')
_BUTTON = re.compile(r'<button class="small" hx-get="([^"]+)"')


def ids(page: httpx2.Response) -> list[str | None]:
    return [one.attributes["data-id"] for one in elements(page, "task-row")]


def parts(browser: Browser, url: str) -> list[httpx2.Response]:
    """What a page loads, one part after another, until it stops by itself."""
    found: list[httpx2.Response] = []
    page = browser.get(url)
    while (following := _LOADS.search(page.text.partition("<main")[2] or page.text)) is not None:
        page = browser.get(html.unescape(following[1]))
        assert page.status_code == 200, page.text
        found.append(page)
    return found


def test_it_looks_both_ways_and_says_from_when_to_when(busy: VirtualInstallation, browser: Browser) -> None:
    for task_id, hours in (("order-1", 3), ("order-2", 20), ("order-3", 40)):
        busy.client.insert(task_id, due_at=NOON + timedelta(hours=1 + hours))
    found = parts(browser, "/search?q=order-")
    assert [ids(part) for part in found] == [[], ["order-1"], [], [], [], ["order-2"], []]
    looked = [text_of(part, "looked") for part in found]
    assert looked[0] == "Looked from 11:00 to 15:00: nothing so far, looking on …"
    assert looked[1] == "Looked from 07:00 to 19:00: 1 task so far, looking on …"
    assert looked[-1] == "Looked from 30 Dec 11:00 to 01 Jan 15:00: 2 tasks so far."
    further = html.unescape(_BUTTON.findall(found[-1].text)[0])
    more = [browser.get(further), *parts(browser, further)]
    assert [one for part in more for one in ids(part)] == ["order-3"]
    assert text_of(more[-1], "looked") == "Looked from 29 Dec 11:00 to 02 Jan 15:00: 3 tasks so far."


def test_what_is_behind_an_empty_part_is_found_and_the_nearest_comes_first(
    busy: VirtualInstallation, browser: Browser
) -> None:
    found = parts(browser, "/search?q=mail")
    assert sorted(str(one) for part in found for one in ids(part)) == [f"mail-{n}" for n in range(4)]
    busy.client.insert("mail-next", due_at=NOON + timedelta(minutes=70))
    assert ids(parts(browser, "/search?q=mail")[0])[0] == "mail-next"


def test_too_many_are_not_all_shown_and_lead_to_their_list(busy: VirtualInstallation, browser: Browser) -> None:
    busy.client.insert_many({"taskId": f"n-{n:03}", "dueAt": NOON + timedelta(hours=2)} for n in range(70))
    (part,) = parts(browser, "/search?q=n-")
    assert len(ids(part)) == 50
    assert text_of(part, "looked") == "Looked from 11:00 to 15:00: 50 tasks so far; there are more."
    listed = browser.get(str(elements(part, "listed")[0].attributes["href"]))
    assert len(ids(listed)) == 50 and elements(listed, "next-page")


def test_it_ends_where_there_is_nothing_left_to_look_through(browser: Browser) -> None:
    end = browser.get("/search/part?q=x&since=2025-12-30T12:30Z&until=2028-01-01T11:30Z&days=400")
    looked = text_of(end, "looked")
    assert looked.endswith(": nothing.") and "so far" not in looked
    assert not elements(end, "go-on")


def test_an_occurrence_that_was_not_made_is_explained(busy: VirtualInstallation, browser: Browser) -> None:
    busy.client.schedules.pause("often", "the move")
    busy.advance(minutes=12)
    (missed, _) = [one for one in busy.client.schedules.history("often") if one.status == "missed"]
    task_id = f"often#1#{missed.occurrence_at:%Y-%m-%dT%H:%M:%SZ}"
    page = browser.follow(browser.get(f"/search?q={task_id.replace('#', '%23')}"))
    assert page.status_code == 200
    assert text_of(page, "explanation").endswith("was not made: the schedule was paused.")
    assert elements(page, "schedule-link")[0].attributes["href"] == "/schedules/often"


def test_an_address_of_before_and_a_wrong_text(browser: Browser) -> None:
    assert browser.get("/tasks?search=a%23b").headers["location"] == "/search?q=a%23b"
    assert browser.get("/search").headers["location"] == "/tasks"
    wrong = browser.get("/search?q=" + "x" * 2000)
    assert wrong.status_code == 400 and "expected" in text_of(wrong, "problem")


def test_a_list_looks_on_by_itself_past_pages_without_a_task(busy: VirtualInstallation, browser: Browser) -> None:
    busy.client.insert("late-one", due_at=NOON + timedelta(days=2, hours=3))
    asked = "/tasks?from=2026-12-31T13:00Z&to=2027-01-07T00:00Z&prefix=late"
    first = browser.get(asked)
    assert not elements(first, "none"), "it denies nothing"
    assert text_of(first, "looked") == "Looked from 13:00 to 01 Jan 14:00; nothing so far, looking on …"
    *_, last = parts(browser, asked)
    assert ids(last) == ["late-one"]
    assert "Looked from 13:00 to " in text_of(last, "looked")
    nothing = browser.get("/tasks?from=2026-12-31T13:00Z&to=2026-12-31T14:00Z&prefix=none")
    assert text_of(nothing, "none") == "No task matches from 13:00 to 14:00."


def test_a_list_asks_before_it_looks_through_a_month(busy: VirtualInstallation, browser: Browser) -> None:
    found = parts(browser, "/tasks?from=2026-12-31T13:00Z&to=2027-01-30T00:00Z&prefix=late")
    assert len(found) == 4
    assert text_of(found[-1], "looked").endswith("; nothing so far.")
    (on,) = elements(found[-1], "next-page")
    again = browser.get(str(on.attributes["href"]))
    assert "nothing more so far, looking on" in text_of(again, "looked")
