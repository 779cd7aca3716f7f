"""Serves the pages over a seeded table: a DynamoDB endpoint that counts, and the application in a thread."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import uvicorn
from tests.ui.clock import NOW, clock_at
from tests.ui.installation import Installation
from tests.ui.seed import Seed

from dynatick import TaskClient
from dynatick.store.dynamodb import DynamoStore
from dynatick.ui.application import application
from dynatick.ui.site import Site
from dynatick_stack.template import table_definition

HOST = "127.0.0.1"
_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Served:
    """Pages over a table. ``installation`` ticks it on."""

    url: str
    table: str
    installation: Installation

    @property
    def client(self) -> TaskClient:
        return self.installation.client


def fill(endpoint: str, seed: Seed) -> str:
    """Makes a table with the rows of a seed, and returns its name."""
    name = f"seeded-{uuid.uuid4().hex}"
    boto3.client("dynamodb", endpoint_url=endpoint).create_table(TableName=name, **table_definition())
    store = DynamoStore(name, endpoint_url=endpoint)
    for first in range(0, len(seed.rows), _ROWS):
        results = store.create_many(seed.rows[first : first + _ROWS])
        assert all(result is True for result in results), results
    return name


@contextmanager
def served(endpoint: str, seed: Seed, *, kept_seconds: float = 10) -> Iterator[Served]:
    """Fills a table and serves its pages, on a clock that stands still."""
    clock, table = clock_at(NOW), fill(endpoint, seed)
    installation = Installation(DynamoStore(table, endpoint_url=endpoint), clock)
    client = TaskClient(DynamoStore(table, endpoint_url=endpoint), clock=clock)
    with run(application(Site(client=client, clock=clock, name="reminders", kept_seconds=kept_seconds))) as url:
        yield Served(url, table, installation)


@contextmanager
def run(application: Any) -> Iterator[str]:
    """An ASGI application on a free port of this machine."""
    listening = socket.socket()
    listening.bind((HOST, 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning", access_log=False, server_header=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the pages' server did not start")
            time.sleep(0.01)  # wait: between two looks at the condition
        yield f"http://{HOST}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()
