"""The pytest plugin: the fixture ``dynatick``, a ``VirtualInstallation`` for one test.

Every pytest run of an environment that has Dynatick imports this module, so what the fixture needs is imported there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dynatick.testing.virtual_installation import VirtualInstallation

_INI = "dynatick_handlers"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI, "the module of the handlers that the fixture `dynatick` runs", default="handlers")


@pytest.fixture
def dynatick(request: pytest.FixtureRequest) -> Iterator[VirtualInstallation]:
    """A Dynatick installation in memory, on a clock that the test moves: task functions schedule there.

    Its handlers are those of the module that the ini option ``dynatick_handlers`` names.
    """
    from dynatick.errors import ConfigurationError
    from dynatick.testing.virtual_installation import VirtualInstallation

    module = str(request.config.getini(_INI))
    try:
        installation = VirtualInstallation(module)
    except ConfigurationError as error:
        pytest.fail(
            f"{error}\nThe fixture `dynatick` runs the handlers of the module {module!r}: "
            f"set the ini option {_INI} to the name of yours.",
            pytrace=False,
        )
    with installation:
        yield installation


@pytest.hookimpl(hookwrapper=True)  # the older form: pytest of any version loads this module
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Adds to the report of a failed test what its installation has run, and what waits there."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if not report.failed or report.when != "call":
        return
    for value in getattr(item, "funcargs", {}).values():
        if type(value).__module__ == "dynatick.testing.virtual_installation":
            report.sections.append(("dynatick", value.report()))
