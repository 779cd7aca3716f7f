"""A plugin of pytest: runs the tests again and again, each round with another seed, until one fails or time is over.

Collecting them takes as long as a round, so it happens once. The first round is always whole.
"""

from __future__ import annotations

import time
from itertools import count, pairwise

import pytest
from hypothesis import core, settings
from tests.search.seed import SEARCH


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--search-minutes", type=float, required=True)
    parser.addoption("--search-step", type=int, required=True, help="from the seed of a round to that of the next")


def pytest_configure() -> None:
    settings.load_profile(SEARCH)  # under CI, Hypothesis begins with one that always draws the same


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    options = session.config.option
    seeds = count(int(session.config.getoption("--hypothesis-seed")), options.search_step)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    end, whole = time.monotonic() + options.search_minutes * 60, False
    if session.testsfailed:
        raise session.Interrupted("not every test can be collected")
    for seed in seeds:
        core.global_force_seed = seed
        for item, following in pairwise([*session.items, None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                reporter.write_line(f"\nAgain: .venv/bin/python -m pytest --hypothesis-seed {seed} '{item.nodeid}'")
                return True
            if time.monotonic() > end and whole:
                return True
        reporter.write_line(f"\nround {seed}: nothing in {len(session.items)} tests")
        whole = True
        if time.monotonic() > end or not session.items:
            return True
    raise AssertionError("count() does not end")
