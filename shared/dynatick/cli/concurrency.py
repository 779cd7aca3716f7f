"""The doctor's look at the account: whether its concurrent executions leave an invocation for each shard's tick."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynatick.cli.stack import aws_client
from dynatick.domain.executions import STREAM_SHARDS, Executions
from dynatick.domain.plan_figures import PARTITION_WRITE_UNITS

if TYPE_CHECKING:
    from dynatick.cli.session import Session


@dataclass(frozen=True, slots=True)
class Room:
    """What the account allows, and what the stack can take of it. ``problem``: why that is not known."""

    allowed: int = 0
    executions: Executions | None = None
    problem: str | None = None

    def to_row(self) -> dict[str, object]:
        """Returns what the command line prints."""
        if self.executions is None:
            return {"problem": self.problem}
        of = self.executions
        return {
            "allowed": self.allowed,
            "needed": of.total,
            "ticks": of.ticks,
            "workers": of.workers,
            "wakeUps": of.wake_ups,
            "recoveries": of.recoveries,
            "stream": of.stream,
            "api": of.api,
            "imports": of.imports,
        }

    def message(self) -> str | None:
        """What to say to a person; None: there is room enough."""
        if self.executions is None:
            return f"Whether the account's concurrent executions suffice is not known: {self.problem}"
        of = self.executions
        if of.total <= self.allowed:
            return None
        text = (
            f"The account allows {self.allowed:,} concurrent executions, and this stack can take {of.total:,} "
            f"({of.in_words()}): ticks of some shards may find none left. Raise the quota"
        )
        fitting = of.max_workers(self.allowed)
        if of.workers and fitting * of.ticks < of.workers:
            text += f", or set MaxWorkers to {fitting} or less"
        return text + (", or lower ApiWaitSeconds or ApiRequestsPerSecond" if of.api else "")


def room_of(session: Session, shards_ever: int) -> Room | None:
    """Returns the room of the session's stack; None if no stack is named, or it is the local one, whose emulator has no
    such quota."""
    stack = session.stack or os.environ.get("DYNATICK_STACK")
    if not stack or session.local:
        return None
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        limit = aws_client(session, "lambda").get_account_settings()["AccountLimit"]
        (found,) = aws_client(session, "cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        return Room(problem=str(error))
    parameters = {one["ParameterKey"]: one["ParameterValue"] for one in found.get("Parameters", ())}
    # What other functions have reserved is not for this stack, and it reserves nothing.
    return Room(int(limit["UnreservedConcurrentExecutions"]), executions_of(parameters, shards_ever))


def executions_of(parameters: Mapping[str, str], shards_ever: int) -> Executions:
    """Returns the executions that a stack's parameters allow. Each shard that was ever in use has ticks and workers."""
    stream_shards = max(STREAM_SHARDS, int(parameters.get("WarmThroughput", "0")) // PARTITION_WRITE_UNITS)
    return Executions(
        ticks=shards_ever,
        workers=shards_ever * int(parameters.get("MaxWorkers", "0")),
        wake_ups=int(parameters.get("WakeUpConcurrency", "0")) if parameters.get("Precision") == "second" else 0,
        stream=stream_shards * int(parameters.get("StreamParallelism", "1")),
        api=0 if parameters.get("ApiEndpoint") == "DISABLED" else _of_api(parameters),
        imports=parameters.get("ImportBucket") == "yes",
    )


def _of_api(parameters: Mapping[str, str]) -> int:
    """The requests that the gateway lets through while the first of them waits; one that doesn't takes a second."""
    rate, burst, wait = (
        int(parameters.get(name, default))
        for name, default in (("ApiRequestsPerSecond", "0"), ("ApiBurst", "0"), ("ApiWaitSeconds", "10"))
    )
    return burst + rate * max(1, wait)
