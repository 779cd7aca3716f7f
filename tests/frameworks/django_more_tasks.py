"""Tasks of the project in docs/how-to/django.md, beside its own."""

from django.tasks import task
from shop.tasks import remind

from dynatick import PermanentError, Reschedule

__all__ = ["attempts", "double", "fail", "no_task", "refuse", "remind", "wait_once"]


class NoMailbox(Exception):
    pass


@task
def fail(text):
    raise NoMailbox(text)


@task
def refuse():
    raise PermanentError("no such order")


@task(takes_context=True)
def attempts(context, until):
    if context.attempt < until:
        raise NoMailbox(str(context.attempt))
    return [context.attempt, context.task_result.id]


@task
def wait_once():
    calls.append(1)
    if len(calls) == 1:
        raise Reschedule(after=30)


calls = []


@task(queue_name="default")
async def double(number):
    return {"double": 2 * number}


def no_task():
    pass
