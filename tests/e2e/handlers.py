"""The handlers of tests, for deployment with ``dynatick_stack.checkout``."""

HANDLERS = """\
import os
import time

from dynatick import HandlerContext, Reschedule, task


@task("poll")
def poll(payload: dict[str, float], context: HandlerContext) -> object:
    # A job elsewhere that is done when it was asked for the third time.
    return {"asked": context.turn + 1} if context.turn == 2 else Reschedule(after=payload["seconds"])


@task("tell")
def tell(payload: dict[str, str]) -> object:
    return os.environ[payload["variable"]]


@task("hang")
def hang(payload: dict[str, object]) -> None:
    time.sleep(600)
"""
