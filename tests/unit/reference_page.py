"""Reads the hand-written tables of docs/reference."""

from __future__ import annotations

import re

from dynatick_stack.reference.parts import FOLDER


def text(page: str) -> str:
    return (FOLDER / page).read_text(encoding="utf-8")


def described(page: str) -> dict[str, list[str]]:
    """The names in the first column of each section's tables, by its heading (the first by the page's title)."""
    sections = re.split(r"^##? ", text(page), flags=re.MULTILINE)[1:]
    return {one.partition("\n")[0]: re.findall(r"^\| \[?`([^`]+)`", one, re.MULTILINE) for one in sections}
