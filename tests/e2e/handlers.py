"""The handlers of tests, for deployment with ``dynatick_stack.checkout``."""

HANDLERS = """\
import os
import time
from urllib.request import Request, urlopen

from dynatick import HandlerContext, Reschedule, task


@task("poll")
def poll(payload: dict[str, float], context: HandlerContext) -> object:
    # A job elsewhere that is done when it was asked for the third time.
    return {"asked": context.turn + 1} if context.turn == 2 else Reschedule(after=payload["seconds"])


@task("die")
def die(payload: dict[str, object]) -> None:
    os._exit(3)


@task("hang")
def hang(payload: dict[str, object]) -> None:
    time.sleep(600)


@task("nap")
def nap(payload: dict[str, float]) -> None:
    time.sleep(float(payload["seconds"]))


@task("late")
def late(payload: dict[str, object], context: HandlerContext) -> None:
    # Its first attempt outlasts the function, and says so should it ever come to its end.
    if context.attempt == 1:
        time.sleep(float(payload["seconds"]))
    headers = {"X-Dynatick-Task-Id": context.task_id, "X-Dynatick-Attempt": str(context.attempt)}
    urlopen(Request(str(payload["url"]), b"{}", {"Idempotency-Key": context.idempotency_key, **headers}))
"""
