"""The action of the fault tests and of the soak: each execution is in the journal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from tests.sandbox.folder import SharedFolder
from tests.sandbox.journal import Began, Ended
from tests.sandbox.locks import end

from dynatick import Commit, CompleteLater, HandlerContext, PermanentError, RetryableError, task

ACTION = "journal"
MANY = 99  # failures, more than any policy of a test allows


def must_fail(plan: object) -> bool:
    """Returns whether a payload plans a task that can't but fail."""
    return isinstance(plan, Mapping) and bool(
        plan.get("permanent") or plan.get("kill") or plan.get("failures", 0) >= MANY
    )


@cache
def _folder() -> SharedFolder:
    return SharedFolder.from_env(os.environ)


@task(ACTION)
def journal(plan: dict[str, Any], context: HandlerContext) -> Commit | CompleteLater | None:
    """Does what its payload plans; of an empty one it is done at once.

    ``seconds``: works for so long first; with ``slowAttempts`` only in the first attempts. ``failures``: how many
    attempts fail before it succeeds. ``permanent``: fails for good. ``kill``: kills its process. ``incarnation``: which
    of the tasks that had its id it is. ``commit``: a table, in which it counts itself together with its outcome;
    ``refused``: in how many attempts a condition of that does not hold. ``later``: it is to be completed within these
    seconds, with a heartbeat each ``heartbeat``.
    """
    folder = _folder()
    attempt: dict[str, Any] = {
        "pid": os.getpid(),
        "task_id": context.task_id,
        "incarnation": str(plan.get("incarnation", context.task_id)),
        "run": context.run,
        "attempt": context.attempt,
        "key": context.idempotency_key,
    }
    times = {"due_at": context.due_at.timestamp(), "until": context.deadline.timestamp()}
    folder.journal.add(Began(**attempt, **times, limit_key=context.limit_key, at=folder.now()))
    if plan.get("kill"):
        end(signal.SIGKILL)
    if context.attempt <= plan.get("slowAttempts", context.attempt):
        time.sleep(float(plan.get("seconds", 0)))  # wait: the work of a task
    permanent, again = bool(plan.get("permanent")), context.attempt <= plan.get("failures", 0)
    refused = context.attempt <= plan.get("refused", 0)
    later = "later" in plan  # then its completion is what it has done
    folder.journal.add(Ended(**attempt, done=not (permanent or again or refused or later), at=folder.now()))
    if permanent:
        raise PermanentError("as planned, for good")
    if again:
        raise RetryableError(f"failure {context.attempt}, as planned")
    if later:
        within, heartbeat = plan["later"], plan.get("heartbeat")
        return CompleteLater(timedelta(seconds=within), None if heartbeat is None else timedelta(seconds=heartbeat))
    if "commit" not in plan:
        return None
    counted = {
        "TableName": plan["commit"],
        "Key": {"id": context.idempotency_key},
        "UpdateExpression": "ADD times :one",
        "ExpressionAttributeValues": {":one": 1},
    }
    return Commit([{"Update": counted | ({"ConditionExpression": "attribute_exists(id)"} if refused else {})}])
