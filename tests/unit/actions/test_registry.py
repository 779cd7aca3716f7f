"""Actions by name."""

import pytest
from tests.unit.actions.support import run

from dynatick.actions.registry import Registry
from dynatick.errors import ConfigurationError, PermanentError, RetryableError


class Action:
    def __init__(self, result=None, error=None):
        self.result, self.error = result, error

    def run(self, task, context):
        if self.error is not None:
            raise self.error
        return self.result


@pytest.mark.parametrize(("known", "listed"), [(["log", "webhook"], "log, webhook"), ([], "none")])
def test_an_unknown_action_is_permanent_and_lists_the_known(known, listed):
    with pytest.raises(PermanentError) as caught:
        run(Registry({name: Action() for name in known}), "nope")
    assert str(caught.value) == f"there is no action 'nope'; known are {listed}"


def test_the_list_of_known_actions_is_bounded():
    registry = Registry({f"action-{n:04}": Action() for n in range(500)})
    with pytest.raises(PermanentError, match=r"action-0019 and 480 more$") as caught:
        run(registry, "n" * 128)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["a", "Log2", "send-reminder", "mail.send", "team/x:y_z", "a" * 128])
def test_valid_names_are_accepted(name):
    assert Registry({name: Action()}).names() == [name]


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "'' is not a name"), (" log", "' log' is not a name"), (None, "None is not a name"),
     *((name, "is not a name") for name in ("send reminder", "-x", "log\n", "größe", print)),
     ("a" * 129, "is too long; expected at most 128 characters")],
)  # fmt: skip
def test_invalid_names_are_refused(name, message):
    with pytest.raises(ConfigurationError, match=message):
        Registry().add(name, Action())


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ValueError("x"), ValueError), (PermanentError("x"), PermanentError), (KeyboardInterrupt(), KeyboardInterrupt),
     (SystemExit(1), RetryableError)],
)  # fmt: skip
def test_errors_pass_through_and_an_action_that_exits_fails_only_its_task(error, raised):
    with pytest.raises(raised):
        run(Registry({"a": Action(error=error)}), "a")
