"""template.yaml deployed to an emulator of the tests' own, on a free port, once for all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support import DeployedStack

from dynatick_stack import emulator, local
from dynatick_stack.demo.receiver import Receiver
from dynatick_stack.emulator import Emulator
from dynatick_stack.local import LocalStack

# Files that wait for ticks more than others do, beginning with the one that lasts longest (by `--durations=0`).
LONGEST = [
    "test_upgrade",
    "test_newcomer",
    "test_docs",
    "test_redeployed",
    "test_import",
    "test_how_tos",
    "test_release",
    "test_restore",
    "test_demo",
    "test_failures",
    "test_handler_hangs",
    "test_local_stack",
    "test_handlers",
    "test_dev",
    "test_many_schedules",
    "test_allowed",
    "test_trace",
    "test_workers",
    "test_deploy_page",
]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The deployed system. A test that redeploys it with other parameters puts them back."""
    state_dir = tmp_path_factory.mktemp("stack") / "local"
    try:
        yield local.up(0, state_dir=state_dir)
    finally:
        local.down(state_dir=state_dir)


@pytest.fixture(scope="session")
def world(stack: LocalStack) -> Iterator[DeployedStack]:
    """The deployed system, with a webhook receiver. Tests share it, so ids are each test's own."""
    with Receiver() as receiver:
        yield DeployedStack(stack=stack, receiver=receiver)


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Emulator]:
    """An emulator with nothing in it."""
    state_dir = tmp_path / "aws" / "local"
    yield emulator.start(0, state_dir=state_dir, say=lambda text: None)
    emulator.stop(state_dir=state_dir)


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder for a test that starts stacks itself, by command; nothing outlives the test."""
    state_dir = (tmp_path / "local").resolve()
    monkeypatch.setenv("DYNATICK_STATE_DIR", str(state_dir))
    yield state_dir
    local.down(state_dir=state_dir)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lasts longest comes first, so that it isn't begun when there is nothing left for the other processes. One
    process has those that are not long, and so one stack."""
    folder, last = Path(__file__).parent, len(LONGEST)
    own = [item for item in items if item.path.is_relative_to(folder)]
    order = {id(item): LONGEST.index(item.path.stem) if item.path.stem in LONGEST else last for item in own}
    items.sort(key=lambda item: order.get(id(item), last))
    for item in own:
        if item.get_closest_marker("long") is None:
            item.add_marker(pytest.mark.xdist_group("stack"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Figures that tests noted (`record_property("figure", …)`): nothing depends on them, people want to see them."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
