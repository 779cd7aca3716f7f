"""The documents' tables are those that the kept figures make."""

from __future__ import annotations

import re

import pytest

from dynatick_stack.bench import cost
from dynatick_stack.bench.documents import _TABLES, DOCUMENTS, figures, rendered

PROMISED = ("wcu_per_task", "rcu_per_task", "cpu_ratio_single_writes", "cpu_ratio_raw_http", "growth_pending")


def test_the_tables_are_up_to_date() -> None:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        assert text == rendered(text, figures()), f"{path.name}: run python -m dynatick_stack.bench.documents"


def test_every_table_stands_in_a_document() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    assert sorted(re.findall(r"<!-- bench: ([\w-]+) -->", texts)) == sorted(_TABLES)
    assert set(PROMISED) <= set(figures())


def test_a_table_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError):
        rendered("<!-- bench: unheard-of -->\n<!-- /bench -->", figures())


def test_what_is_written_stays_when_it_is_written_again() -> None:
    text = "before\n<!-- bench: prices -->\n<!-- /bench -->\nafter\n"
    once = rendered(text, figures())
    assert once.startswith("before\n")
    assert once.endswith("<!-- /bench -->\nafter\n")
    assert "$0.625 a million" in once
    assert "$0.0000133334 a GB-second" in once
    assert rendered(once, figures()) == once


def test_what_the_text_says_of_the_comparison_is_so() -> None:
    """The sentence in bold, and the order of magnitude that it stands on."""
    found = figures()
    for tasks in (10**5, 10**6, 10**7, 10**8):
        assert cost.eventbridge_month(tasks, with_outcomes=False) < cost.month(found, tasks)
    assert cost.task(found).writes > 0.8 * cost.task(found).total  # "Writes are nearly all of it"
