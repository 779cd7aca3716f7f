"""Options and safety that hold for every test."""

import gc
import os
import random
import threading
import uuid
from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from moto.core.botocore_stubber import BotocoreStubber
from tests import once  # noqa: F401
from tests.search.seed import SEARCH
from xdist.scheduler import LoadGroupScheduling

LOOPBACK = {"127.0.0.1", "localhost", "::1"}

# Nothing that a test does may reach a real account by accident: the credentials are fake, and
# neither the user's profile nor an instance's role is asked for others.
FAKE_AWS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_SESSION_TOKEN": "",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}

os.environ.pop("COLUMNS", None)  # of the terminal in which the tests run: tables would fold by it

# Properties are held to what they say and not to how long it takes: the machine may be busy. The same examples each
# time, on every machine: what was drawn once must not be the reason that a later run fails, or does not.
settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# Hypothesis also draws constants that it finds in the modules imported so far, which differ from process to process.
providers._get_local_constants = lambda: providers._local_constants  # empty

# moto answers in the caller's thread, and is not made for several: one request at a time.
_one_at_a_time = threading.RLock()
_answer = BotocoreStubber.__call__


def _answer_alone(self: BotocoreStubber, *args: Any, **kwargs: Any) -> Any:
    with _one_at_a_time:
        return _answer(self, *args, **kwargs)


BotocoreStubber.__call__ = _answer_alone  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dynamodb-endpoint",
        metavar="URL",
        default=None,
        help="run the contract and integration suites against this DynamoDB endpoint too; "
        "an endpoint off this machine is called with your own credentials",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("repeatable" if config.getoption("--hypothesis-seed") is None else SEARCH)
    endpoint: str | None = config.getoption("--dynamodb-endpoint")
    if endpoint is None or _on_this_machine(endpoint):
        os.environ.pop("AWS_PROFILE", None)
        os.environ.update(FAKE_AWS)
    # Otherwise recent botocore puts the account into the host name, and moto's stream calls go
    # astray.
    os.environ["AWS_ACCOUNT_ID_ENDPOINT_MODE"] = "disabled"


class FilesAndGroups(LoadGroupScheduling):  # type: ignore[misc]
    """Gives a file's tests to one process, and those of a group (`xdist_group`), in the order of the command line. One
    by one they would be looked through at each end of a test: thousands of times thousands."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return group.partition("::")[0]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndGroups | None:
    """Of a run of all layers: the pages have few files, and wait."""
    in_order = config.getvalue("dist") == "loadgroup" and not config.getvalue("loadscopereorder")
    return FilesAndGroups(config, log) if in_order else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """What is imported and collected lives to the end: the garbage collector need not look at it again and again. Nor
    need it look for cycles as often as it does by itself, which takes a twelfth of the tests' CPU."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)


def _on_this_machine(endpoint: str) -> bool:
    return urlsplit(endpoint).hostname in LOOPBACK


@pytest.fixture(scope="session")
def dynamodb_endpoint(request: pytest.FixtureRequest) -> str | None:
    """The endpoint given by --dynamodb-endpoint, or None."""
    endpoint: str | None = request.config.getoption("--dynamodb-endpoint")
    return endpoint


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Lets each test meet the same jitter of retries and the like, whatever ran before it."""
    random.seed(0)


@pytest.fixture(autouse=True)
def own_database(dynamodb_endpoint: str | None) -> None:
    """Gives each test an access key of its own at an endpoint on this machine.

    DynamoDB Local has a database for each access key. It keeps the stream records of deleted tables for a day, and
    each statement of a batch reads those of the same database that are older than its table's, several times.
    """
    if dynamodb_endpoint is not None and _on_this_machine(dynamodb_endpoint):
        os.environ["AWS_ACCESS_KEY_ID"] = f"test{uuid.uuid4().hex}"
        boto3.setup_default_session()  # the one before has the credentials that it began with
