"""What tests draw from: each time the same, or a seed of a search."""

from __future__ import annotations

from hypothesis import core


def search_seed() -> int | None:
    """The seed given by ``--hypothesis-seed``, or that of a round of ``make search``; None: draw the same each time."""
    seed: int | None = core.global_force_seed
    return seed
