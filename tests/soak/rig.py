"""What a soak runs on: an emulator of its own, a fast clock, and processes around the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.sandbox.installation import SandboxInstallation
from tests.sandbox.process import Sandbox
from tests.soak.plan import Plan

from dynatick_stack import emulator
from dynatick_stack.template import ROOT
from dynatick_stack.venv import Say


class ClosedError(Exception):
    """The rig is closed: nothing is started any more."""


class Rig(SandboxInstallation):
    """Its processes are of the deployment, and the skew, that are due when they start."""

    worker = "tests.soak.worker"

    def __init__(self, plan: Plan, endpoint: str, folder: Path) -> None:
        super().__init__(endpoint, folder, start=datetime.now(UTC), speed=plan.speed, DYNATICK_TASK_THREADS="4",
                         DYNATICK_WAKE_UP_QUEUE_URL="https://sqs.example/1/wake-ups")  # fmt: skip
        self.plan = plan
        self._inserters: list[subprocess.Popen[bytes]] = []
        self._starting = threading.Lock()
        self._closed = False
        self.deployed = plan.shards, plan.precisions[0]  # shards and precision of processes that start from now on
        self._skews = plan.skews()
        self._seeds = plan.dice("seams")

    def kill_all(self) -> None:
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

    def sandbox(self, function: str = "processor", *_: str) -> Sandbox:
        with self._start():
            shards, self.environ["DYNATICK_PRECISION"] = self.deployed
            self.environ["DYNATICK_SHARD_COUNT"] = str(shards)
            return super().sandbox(function, str(self._seeds.randrange(1 << 32)), str(next(self._skews)))

    def inserter(self, name: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log, self._start():
            made = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.inserter", name, str(self.plan.seed)],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, who end it in order
            )
            self._inserters.append(made)
        return made

    def items(self, ids: list[str]) -> list[Mapping[str, Any]]:
        """Rows as DynamoDB spells them."""
        found = (
            self.dynamodb.get_item(TableName=self.table, Key={"taskId": {"S": task_id}}, ConsistentRead=True)
            for task_id in ids
        )
        return [answer["Item"] for answer in found if "Item" in answer]


@contextmanager
def rigged(plan: Plan, folder: Path, say: Say) -> Iterator[Rig]:
    """What it has started is gone at its end."""
    shared, state = folder / "shared", folder / "local"
    shared.mkdir(parents=True)
    endpoint = emulator.start(emulator.free_port(), state_dir=state, say=say).endpoint
    try:
        rig = Rig(plan, endpoint, shared)
        try:
            yield rig
        finally:
            rig.kill_all()
            rig.close()
    finally:
        emulator.stop(state_dir=state)


def kill_group(inserter: subprocess.Popen[bytes]) -> None:
    """With what it has started."""
    if inserter.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(inserter.pid, signal.SIGKILL)
