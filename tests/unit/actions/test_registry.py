"""Actions by name."""

from types import SimpleNamespace

import pytest
from tests.unit.actions.support import run

from dynatick.actions.registry import Registry
from dynatick.errors import ConfigurationError, PermanentError, RetryableError

MANY = [f"action-{n:04}" for n in range(500)]


@pytest.mark.parametrize(
    ("known", "listed"),
    [(["log", "webhook"], "log, webhook"), ([], "none"), (MANY, f"{', '.join(MANY[:20])} and 480 more")],
)
def test_an_unknown_action_is_permanent_and_lists_the_known(known, listed):
    with pytest.raises(PermanentError) as caught:
        run(Registry(dict.fromkeys(known)), "nope")
    assert str(caught.value) == f"there is no action 'nope'; known are {listed}"


@pytest.mark.parametrize("name", ["a", "Log2", "send-reminder", "mail.send", "team/x:y_z", "a" * 128])
def test_valid_names_are_accepted(name):
    assert Registry({name: None}).names() == [name]


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "'' is not a name"), (" log", "' log' is not a name"), (None, "None is not a name"),
     *((name, "is not a name") for name in ("send reminder", "-x", "log\n", "größe", print)),
     ("a" * 129, "is too long; expected at most 128 characters"),
     ("dynatick.batch", "is reserved; expected a name that does not begin with dynatick.")],
)  # fmt: skip
def test_invalid_names_are_refused(name, message):
    with pytest.raises(ConfigurationError, match=message):
        Registry().add(name, None)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ValueError("x"), ValueError), (PermanentError("x"), PermanentError), (KeyboardInterrupt(), KeyboardInterrupt),
     (SystemExit(1), RetryableError)],
)  # fmt: skip
def test_errors_pass_through_and_an_action_that_exits_fails_only_its_task(error, raised):
    def fail(task, context):
        raise error

    with pytest.raises(raised):
        run(Registry({"a": SimpleNamespace(run=fail)}), "a")
