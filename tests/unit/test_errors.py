"""What all errors have in common."""

from __future__ import annotations

import pickle
from datetime import timedelta
from inspect import getmembers, isclass

import pytest

from dynatick import errors
from dynatick.client import InsertCounts, NoneInserted, Refused

AN_INPUT = errors.InvalidInput("dueAt", "tomorrow", "expected a time")
AN_INPUT.others = (errors.InvalidInput("action", 5, "expected text"),)
NONE_INSERTED = NoneInserted(InsertCounts(refused=1, problems=[Refused(position=0, task_id=None, error=AN_INPUT)]))
EXAMPLES = [
    errors.DynatickError("all"),
    AN_INPUT,
    errors.ConfigurationError("DYNATICK_TABLE", "it is missing"),
    errors.TaskExists("order-7"),
    errors.ScheduleDiffers("nightly", {"rate": ("rate(1 hour)", "rate(1 day)")}, "choose another id"),
    errors.BatchDiffers("orders", {"members": (2, 3)}),
    errors.TaskNotFound("order-7"),
    errors.ScheduleNotFound("nightly"),
    errors.BatchNotFound("orders"),
    errors.WaitTimedOut("not yet"),
    errors.TransitionRefused("order-7", "restore", "running", ("cancelled",)),
    errors.CompletionRefused("its attempt is over"),
    errors.TaskChanged("order-7"),
    errors.StoreError("throttled"),
    errors.ItemTooLarge("400 KB"),
    errors.NoAnswer("no answer"),
    errors.QueueError("no queue"),
    errors.ActionError("failed"),
    errors.PermanentError("no such customer"),
    errors.RetryableError("busy", retry_after=timedelta(minutes=1)),
    errors.RateLimited(5.0, defer=True),
    errors.Reschedule(after=60),
    NONE_INSERTED,
]


class OutOfStock(errors.RetryableError):
    """Of a user, with arguments of its own."""

    def __init__(self, *, sku: str) -> None:
        super().__init__(f"{sku} is out of stock", retry_after=60)
        self.sku = sku


def test_there_is_an_example_of_every_class() -> None:
    kinds = {kind for name, kind in getmembers(errors, isclass) if issubclass(kind, Exception) and name[0] != "_"}
    assert kinds <= {type(example) for example in EXAMPLES}


@pytest.mark.parametrize("error", [*EXAMPLES, OutOfStock(sku="A-7")], ids=lambda error: type(error).__name__)
def test_an_error_of_another_process_is_the_same(error: Exception) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), repr(vars(other))) == (type(error), str(error), repr(vars(error)))
