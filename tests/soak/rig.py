"""What a soak runs on: an emulator of its own with the template's table, a fast clock, and processes around them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tests.sandbox.clock import SharedClock
from tests.sandbox.process import Sandbox
from tests.soak.actions import ACTION
from tests.soak.plan import Plan
from tests.soak.surroundings import FOLDER, Surroundings

from dynatick import TaskClient
from dynatick.client.connect import ClientSettings, open_store
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.store.codec import decode
from dynatick_stack import deploy, emulator
from dynatick_stack.template import ROOT, table_definition
from dynatick_stack.venv import Say

TABLE = QUEUE = "dynatick-soak"


class ClosedError(Exception):
    """The rig is closed: nothing is started any more."""


class Rig:
    """A context: what it has started is gone at its end."""

    def __init__(self, plan: Plan, folder: Path, say: Say) -> None:
        self.plan, self._folder, self._say = plan, folder, say
        self.here = Surroundings(folder / "shared")
        self._sandboxes: list[Sandbox] = []
        self._inserters: list[subprocess.Popen[bytes]] = []
        self._starting = threading.Lock()
        self._closed = False
        self.shards = plan.shards  # of processes that start from now on
        self._skews = plan.skews()
        self._seeds = plan.dice("seams")

    def __enter__(self) -> Rig:
        self.here.folder.mkdir(parents=True)
        state = self._folder / "local"
        self.endpoint = emulator.start(emulator.free_port(), state_dir=state, say=self._say).endpoint
        self.client("dynamodb").create_table(TableName=TABLE, **table_definition())
        self.queue: str = self.client("sqs").create_queue(QueueName=QUEUE)["QueueUrl"]
        # Made before any other process looks for it.
        SharedClock(self.here.folder / "clock", datetime.now(UTC), speed=self.plan.speed)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for sandbox in self._sandboxes:
            sandbox.close()
        emulator.stop(state_dir=self._folder / "local")

    @property
    def client(self) -> partial[Any]:
        """Makes a client of a service of the emulator."""
        return partial(deploy.client, endpoint=self.endpoint)

    @property
    def log(self) -> Path:
        """What all processes say."""
        return self._folder / "log"

    # -- processes -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends all processes but the emulator; no other is started any more."""
        with self._starting:
            self._closed = True
        for inserter in self._inserters:
            kill_group(inserter)
            inserter.wait()
        for sandbox in self._sandboxes:
            sandbox.kill()

    @contextmanager
    def _start(self) -> Iterator[None]:
        """For starting a process, so that none is overlooked at the end."""
        with self._starting:
            if self._closed:
                raise ClosedError
            yield

    def sandbox(self, function: str) -> Sandbox:
        """A process of a function; it starts, and is not waited for."""
        own = {"DYNATICK_SHARD_COUNT": str(self.shards)}
        if function == "scheduler":
            own["DYNATICK_ASSIGNMENT_POLICY"] = "assignment:next_tick"
        arguments = (function, str(self._seeds.randrange(1 << 32)), str(next(self._skews)))
        with self._start():
            made = Sandbox("tests.soak.worker", *arguments, environ=self._environ | own, log=self.log)
            self._sandboxes.append(made)
        return made

    def inserter(self, name: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log, self._start():
            made = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.inserter", name, str(self.plan.seed)],
                cwd=ROOT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, who end it in order
            )
            self._inserters.append(made)
        return made

    @cached_property
    def _environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": deploy.REGION,
            "AWS_DEFAULT_REGION": deploy.REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_LAMBDA_FUNCTION_NAME": "processor",
            "DYNATICK_TABLE": TABLE,
            "DYNATICK_DEAD_LETTER_QUEUE_URL": self.queue,
            "DYNATICK_DEFAULT_ACTION": ACTION,
            "DYNATICK_HANDLERS_MODULE": "tests.soak.actions",
            "DYNATICK_TASK_THREADS": "4",
            "POWERTOOLS_METRICS_NAMESPACE": "Dynatick",
            "POWERTOOLS_SERVICE_NAME": "soak",
            FOLDER: str(self.here.folder),
        }

    # -- the table -------------------------------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> TaskClient:
        """By the fast clock, and without any fault."""
        settings = ClientSettings(
            table=TABLE, region=deploy.REGION, endpoint_url=self.endpoint, credentials=("test", "test")
        )
        return TaskClient(open_store(settings), clock=self.here.clock)

    def rows(self) -> dict[str, Row]:
        """Every task, by id."""
        pages = self.client("dynamodb").get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
        rows = (decode(item) for page in pages for item in page["Items"])
        return {str(row["taskId"]): row for row in rows if not is_own_row(row["taskId"])}

    def cursors(self) -> list[Cursor]:
        found: list[Cursor] = []
        while (row := self.tasks.store.get(cursor_id(len(found)))) is not None:
            found.append(Cursor.from_row(len(found), row))
        return found

    def items(self, ids: list[str]) -> list[Mapping[str, Any]]:
        """Rows as DynamoDB spells them."""
        read = partial(self.client("dynamodb").get_item, TableName=TABLE, ConsistentRead=True)
        found = (read(Key={"taskId": {"S": task_id}}).get("Item") for task_id in ids)
        return [item for item in found if item is not None]

    def letters(self) -> set[tuple[str, str, int]]:
        """The task of each message in the dead-letter queue, when it was inserted, and its run; they are taken out."""
        sqs, found = self.client("sqs"), set()
        while messages := sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                letter = json.loads(message["Body"])
                found.add((str(letter["taskId"]), str(letter.get("createdAt")), int(letter["run"])))
                sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return found


def kill_group(inserter: subprocess.Popen[bytes]) -> None:
    """With what it has started."""
    if inserter.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(inserter.pid, signal.SIGKILL)
