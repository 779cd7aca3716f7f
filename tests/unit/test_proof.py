"""The model of the protocol names the rules of its document. Spin itself is for ``make prove``."""

from __future__ import annotations

import re
from pathlib import Path

from proof.prove import CONFIGURATIONS, NO_SAFETY, REMOVALS, story

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
