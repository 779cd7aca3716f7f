"""docs/reference is what code and template say now."""

from __future__ import annotations

import pytest

from dynatick_stack.reference import attributes, metrics
from dynatick_stack.reference.markdown import GENERATED, entries, table
from dynatick_stack.reference.pages import FOLDER, pages

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_make_docs_writes_it(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "run `make docs`"


def test_no_page_of_the_folder_is_left_over() -> None:
    written = {path.name for path in FOLDER.glob("*.md") if GENERATED in path.read_text(encoding="utf-8")}
    assert written | {"openapi.json"} == set(PAGES)


def test_what_nobody_has_described_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "OWN_ATTRIBUTES", attributes.OWN_ATTRIBUTES | {"colour"})
    with pytest.raises(ValueError, match="colour"):
        attributes.page()
    monkeypatch.setattr(metrics, "written", lambda: {"Colours"})
    with pytest.raises(ValueError, match="Colours"):
        metrics.page()


def test_the_parts_of_a_page() -> None:
    assert table(["A", "B"], [("x|y", " z ")]) == "| A | B |\n|---|---|\n| x\\|y | z |"
    assert entries("a | 1 | one\n    and more\nb | 2 | two\n") == {"a": ["1", "one and more"], "b": ["2", "two"]}
