"""Keeps answers within the size that a function may return."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aws_lambda_powertools.event_handler import Response

from dynatick.actions.plain_value import to_json
from dynatick.api.routes import answer
from dynatick.domain.view import View

MAX_CHARACTERS = 3_000_000
"""The limit for an answer's body. A function answers with 6 MB at the most (Lambda quotas), in which the body stands as
text of JSON: each quotation mark and backslash takes two."""


def page(page_of: Callable[[int], View], limit: int) -> Response[str]:
    """A page of at most ``limit`` entries; of fewer, if they are large."""
    while True:
        made = answer(page_of(limit))
        if limit == 1 or len(made.body or "") <= MAX_CHARACTERS:
            return made
        limit //= 2


def fitting(views: Sequence[View]) -> int:
    """How many views, from the first, fit into one answer."""
    remaining = MAX_CHARACTERS
    for n, view in enumerate(views):
        remaining -= len(to_json(view.to_row()))
        if remaining < 0:
            return n
    return len(views)
