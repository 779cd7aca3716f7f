"""How many random expressions the oracle is asked about: ``--expressions 120000``, as by ``make expressions``."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--expressions", type=int, default=2000, help="Random expressions that are compared.")
