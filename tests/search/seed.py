"""What tests draw from: each time the same, or a seed of a search."""

from __future__ import annotations

from hypothesis import HealthCheck, core, settings

SEARCH = "search"
"""The profile of ``make search``, and of a test that repeats what it found: ``--hypothesis-seed`` draws others."""

settings.register_profile(
    SEARCH, derandomize=False, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def search_seed() -> int | None:
    """The seed given by ``--hypothesis-seed``, or that of a round of ``make search``; None: draw the same each time."""
    seed: int | None = core.global_force_seed
    return seed
