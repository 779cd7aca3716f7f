"""The model of the protocol names the rules of its document. Spin itself is for ``make prove``."""

from __future__ import annotations

import re
from pathlib import Path

from proof.prove import CONFIGURATIONS, NO_SAFETY, PAGE, REMOVALS, story
from tests.faults.table import FAULTS

ROOT = Path(__file__).parents[2]
RULES = {
    int(number) for number in re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "protocol.md").read_text("utf-8"), re.M)
}
MODEL = "".join(path.read_text("utf-8") for path in sorted((ROOT / "proof").glob("*.pml")))


def test_each_rule_is_taken_out_or_says_why_not() -> None:
    assert len(RULES) == max(RULES)
    assert {one.rule for one in REMOVALS} | NO_SAFETY.keys() == RULES
    assert not {one.rule for one in REMOVALS} & NO_SAFETY.keys()


def test_each_rule_has_its_place_in_the_model() -> None:
    named = {int(n) for comment in re.findall(r"/\*.*?\*/", MODEL, re.S) for n in re.findall(r"\b(\d+)\b", comment)}
    assert named >= RULES


def test_what_is_taken_out_is_in_the_model() -> None:
    """Else the search would be of the intact rules."""
    asked = {int(n) for n in re.findall(r"OFF\((\d+)\)", MODEL)}
    assert {one.code for one in REMOVALS} == asked
    assert {one.code % 100 for one in REMOVALS} == RULES - NO_SAFETY.keys()
    assert all(one.code % 100 == one.rule for one in REMOVALS)


def test_each_macro_of_a_configuration_means_something() -> None:
    """A misspelt one would search another world."""
    macros = {macro.partition("=")[0] for one in (*CONFIGURATIONS, *REMOVALS) for macro in one.macros.split()}
    known = set(re.findall(r"(?:ifdef|ifndef|defined)\W+(\w+)", MODEL))
    assert macros <= known


def test_a_story_tells_who_did_what() -> None:
    trail = """
      @1 [0] inserts A into 12:01
          @2 [11] claims and begins A at 12:01
spin: text of failed assertion: assert((ended[0]<=1))
"""
    assert story(trail) == [
        "12:01  a client inserts A into 12:01",
        "12:02  tick 1 claims and begins A at 12:01",
        "       and then this does not hold: (ended[0]<=1)",
    ]


def _numbers(text: str) -> set[int]:
    """``1 to 3, 5`` as 1, 2, 3, 5."""
    ranges = re.findall(r"(\d+)(?: to (\d+))?", text)
    return {number for first, last in ranges for number in range(int(first), int(last or first) + 1)}


def test_each_promise_has_a_line_that_names_what_there_is() -> None:
    promises = (ROOT / "docs" / "guarantees.md").read_text("utf-8").partition("## In detail")[2].partition("\n## ")[0]
    section = PAGE.read_text("utf-8").partition("## Each promise")[2].partition("\n### ")[0]
    lines = {
        cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in section.splitlines()) if cells[1:]
    }
    assert re.findall(r"^\| ([A-Z][^|]*) \| [a-z]", promises, re.M) == list(lines)[1:]
    keys = {int(number) for number in re.findall(r"rules (\d+) and (\d+)", section)[0]}
    worlds = {one.name for one in CONFIGURATIONS}
    for name, (rules, spin, faults, judged) in list(lines.items())[1:]:
        assert _numbers(rules) <= RULES, name
        assert _numbers(faults) <= FAULTS.keys(), name
        assert {world for world in spin.split(", ") if world != "-"} <= worlds, name
        assert judged, name
    assert set().union(*(_numbers(cells[0]) for cells in lines.values())) | keys == RULES
