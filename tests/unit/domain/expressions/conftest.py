"""The option ``--expressions``: how many random expressions are compared with the oracle."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--expressions", type=int, default=2000, help="Random expressions that are compared.")
