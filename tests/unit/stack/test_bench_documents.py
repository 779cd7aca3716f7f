"""The tables of docs/performance.md and docs/cost.md are what the measured figures say."""

from __future__ import annotations

import json

import pytest

from dynatick_stack.bench.documents import DATA, DOCUMENTS, TABLES, rendered

FIGURES = json.loads(DATA.read_text(encoding="utf-8"))


def test_the_documents_are_as_the_measurement_writes_them() -> None:
    text = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert text == rendered(text, FIGURES), "run make bench WRITE=1"
    assert all(f"<!-- bench: {name} -->" in text for name in TABLES)


def test_a_table_takes_the_place_of_what_stood_there() -> None:
    text = "before\n<!-- bench: task -->\nold\n<!-- /bench -->\nafter\n"
    once = rendered(text, FIGURES)
    assert once.startswith("before\n")
    assert "old" not in once
    assert once.endswith("<!-- /bench -->\nafter\n")
    assert rendered(once, FIGURES) == once


def test_a_table_that_is_not_known_is_an_error() -> None:
    with pytest.raises(KeyError):
        rendered("<!-- bench: colours -->\n<!-- /bench -->", FIGURES)
