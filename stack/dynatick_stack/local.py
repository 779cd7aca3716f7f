"""The local stack: an emulator with template.yaml deployed to it."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynatick_stack import deploy, emulator, processes, template
from dynatick_stack.build import build, libraries
from dynatick_stack.emulator import STACK
from dynatick_stack.errors import DeployError
from dynatick_stack.files import exclusive
from dynatick_stack.folders import CACHE, STATE
from dynatick_stack.logs import LogLine, LogReader
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    from dynatick.client import TaskClient

# What differs from the template's defaults here: tasks may reach this machine, and what is on the emulator.
LOCAL = {
    "WebhookPrivateHosts": f"{emulator.HOST},localhost",
    "AllowedWebhookHosts": "*",
    "AllowedTargetArns": "arn:aws:events:*:*:event-bus/*,arn:aws:lambda:*:*:function:*,arn:aws:sns:*:*:*,"
    "arn:aws:sqs:*:*:*,arn:aws:states:*:*:stateMachine:*",
    "AllowedSecrets": "arn:aws:ssm:*:*:parameter/dynatick/*,arn:aws:secretsmanager:*:*:secret:dynatick/*",
}
# The template leaves these out on an emulator, which has no such limits.
WITHOUT_EFFECT = ("WarmThroughput", "MaxWriteUnits")
FIRST_RUNS = 4
FIRST_RUNS_SECONDS = 60
# What the emulator answers where it ended the worker before this could say a word: no fault of the function's.
ENDED_WORKER = 'Worker process exited immediately. stderr: "'


@dataclass(kw_only=True)
class LocalStack:
    """A running one."""

    endpoint: str
    state_dir: Path = STATE
    root: Path = template.ROOT
    cache: Path = CACHE
    outputs: dict[str, str] = field(default_factory=dict)
    name: str = STACK

    @property
    def table(self) -> str:
        return self.outputs["TasksTableName"]

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters in force."""
        return deploy.stack_at(self.endpoint, self.name).parameters()

    def client(self, service: str) -> Any:
        """A boto3 client of the emulator."""
        return deploy.client(service, self.endpoint)

    def task_client(self) -> TaskClient:
        """The Python client of its table, whatever credentials the user has."""
        from dynatick.client import ClientSettings, TaskClient  # loads the AWS SDK, which `--help` does without
        from dynatick.client.connect import open_queue, open_store

        settings = ClientSettings(
            table=self.table,
            dead_letter_queue_url=self.outputs.get("DeadLetterQueueUrl"),
            region=deploy.REGION,
            endpoint_url=self.endpoint,
            credentials=("test", "test"),
        )
        return TaskClient(open_store(settings), dead_letter_queue=open_queue(settings))

    def redeploy(self, *, say: Say = print, **parameters: object) -> dict[str, str]:
        """Deploy what lies in the checkout now, with these parameters changed. Data stays."""
        emulator.provide(libraries(say, root=self.root, cache=self.cache), state_dir=self.state_dir)
        artifacts = build(root=self.root, cache=self.cache)
        wanted = {name: str(value) for name, value in parameters.items()}
        for name in WITHOUT_EFFECT:
            if wanted.get(name, "0") != "0":
                say(f"{name} has no effect on the local stack: its table has no such limit")
        self.outputs = deploy.deploy(self.endpoint, artifacts, wanted, root=self.root, name=self.name)
        self._first_occurrence()
        return self.outputs

    def invoke_processor(self, event: Mapping[str, Any]) -> Any:
        """Run the processor now, and wait for it; its answer."""
        answer = self.client("lambda").invoke(
            FunctionName=self.outputs["ProcessorFunctionName"], Payload=json.dumps(event).encode()
        )
        payload = answer["Payload"].read()
        if "FunctionError" in answer:
            raise DeployError(f"The processor failed: {payload.decode(errors='replace')}")
        return json.loads(payload)

    def tick(self, at: datetime | None = None) -> Any:
        """Run the processor as the rule does, for this instant; now if none is given."""
        nominal = (at or datetime.now(UTC)).astimezone(UTC)
        return self.invoke_processor(
            {
                "version": "0",
                "id": f"local-{nominal:%Y%m%d%H%M%S%f}",
                "source": "aws.events",
                "detail-type": "Scheduled Event",
                "time": f"{nominal:%Y-%m-%dT%H:%M:%SZ}",
                "detail": {},
            }
        )

    def logs(self, *, since: float = 0.0, function: str | None = None) -> list[LogLine]:
        """All that the functions wrote since then, in order of time."""
        return LogReader(self.endpoint, since=since, function=function, stack=self.name).read()

    def _first_occurrence(self) -> None:
        # Inserters read the grid in force from a row that the processor keeps: it should say at
        # once what has just been deployed, not at the next tick only.
        failures, end = 0, time.monotonic() + FIRST_RUNS_SECONDS
        while True:
            try:
                self.tick()
                return
            except DeployError as error:
                # The emulator ends what ran when a function was updated, and for each run that
                # ends so, all workers of the function, this one too. A real fault stays.
                failures += ENDED_WORKER not in str(error)
                if failures == FIRST_RUNS or time.monotonic() > end:
                    raise
                time.sleep(0.5)


def up(
    port: int | None = None,
    parameters: Mapping[str, str] | None = None,
    *,
    say: Say = print,
    state_dir: Path = STATE,
    root: Path = template.ROOT,
    cache: Path = CACHE,
    name: str = STACK,
    prepare: Callable[[LocalStack], Mapping[str, str]] = lambda stack: {},
) -> LocalStack:
    """Start an emulator afresh and deploy to it. If anything fails, nothing is left running.

    ``port``: 0 is a free one, None the usual one or a free one. ``prepare``: is called between, and returns more
    parameters.
    """
    wanted = {"Architecture": architecture(), **LOCAL, **(parameters or {})}
    template.check_parameters(wanted, template.load(root / template.TEMPLATE.name))
    busy = f"Another start is under way in {state_dir}; wait for it or end it"
    with exclusive(state_dir.with_name(state_dir.name + ".lock"), busy=busy):
        # All that may fail comes first: what runs then goes on.
        if port is not None:
            emulator.check_port(port, state_dir=state_dir)
        libraries(say, root=root, cache=cache)
        build(root=root, cache=cache)
        earlier = processes.emulator(state_dir)
        try:
            running = emulator.start(port, state_dir=state_dir, say=say, stack=name)
            say(f"Deploying {template.TEMPLATE.name} to {running.endpoint}")
            stack = LocalStack(endpoint=running.endpoint, state_dir=state_dir, root=root, cache=cache, name=name)
            stack.redeploy(say=say, **{**wanted, **prepare(stack)})
        except BaseException:
            # Unless it failed so early that the one that ran before still does.
            if earlier is None or processes.emulator(state_dir) != earlier:
                emulator.stop(state_dir=state_dir)
            raise
    return stack


def down(*, state_dir: Path = STATE) -> bool:
    """Stop it; true if it ran."""
    return emulator.stop(state_dir=state_dir)


def attach(*, state_dir: Path = STATE) -> LocalStack:
    """The one that runs."""
    running = emulator.current(state_dir=state_dir)
    outputs = deploy.outputs(running.endpoint, running.stack)
    return LocalStack(endpoint=running.endpoint, state_dir=state_dir, outputs=outputs, name=running.stack)


def architecture() -> str:
    """This machine's, as Lambda calls it."""
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
