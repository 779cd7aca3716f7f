"""The tables of docs/performance.md and docs/cost.md are what the measured figures say."""

from __future__ import annotations

import json

import pytest

from dynatick_stack.bench.costs import DATA, DOCS, TABLES, tables
from dynatick_stack.markdown import part_names, with_parts


@pytest.mark.parametrize("page", TABLES)
def test_the_documents_are_as_the_measurement_writes_them(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    figures = json.loads(DATA.read_text(encoding="utf-8"))
    assert with_parts(text, tables(page, figures)) == text, "run make bench WRITE=1"
    assert part_names(text) == list(TABLES[page])
