"""Handlers: declaration, arguments, errors and loading."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from boto3.dynamodb.types import Binary
from pydantic import BaseModel, Field, field_validator
from tests.unit.actions.support import NOW, a_context, a_task
from typing_extensions import TypedDict

from dynatick.actions import handlers as handlers_module
from dynatick.actions.handlers import Handler, HandlerContext, around, load_handlers
from dynatick.errors import ConfigurationError, InvalidInput, PermanentError, Reschedule, RetryableError
from dynatick.task_function import task

if TYPE_CHECKING:
    from somewhere import Unknown


def run(function, payload=None, permanent=(), **values):
    one = a_task(payload, **values)
    return Handler("x", function, permanent).run(one, a_context(one))


def raises(error):
    def fail(payload):
        raise error

    return fail


# What a handler gets


@dataclass
class Reminder:
    to: str
    at: datetime
    copies: int = 1
    weight: Decimal = Decimal(0)
    attachment: bytes = b""
    tags: set[str] = field(default_factory=set)


class Order(BaseModel):
    id: int
    lines: list[Line]


class Line(BaseModel):
    item: str
    count: int


RAW = {"n": Decimal("3"), "f": Decimal("0.5"), "b": Binary(b"\x00"), "s": {"x"}, "list": [{"n": Decimal("1")}]}
PLAIN = {"n": 3, "f": 0.5, "b": b"\x00", "s": {"x"}, "list": [{"n": 1}]}


def as_object(payload: object) -> Unknown:
    return payload


def typed(kind=None):
    """A handler that returns its payload, which is declared as ``kind``."""

    def handle(payload):
        return payload

    if kind is not None:
        handle.__annotations__["payload"] = kind
    return handle


RAW_TYPES = [None, dict, dict[str, object], Mapping[str, Any], Any]


@pytest.mark.parametrize("function", [*map(typed, RAW_TYPES), as_object])
def test_a_raw_payload_is_plain_python(function):
    assert run(function, RAW) == PLAIN


def test_a_handler_may_change_its_payload():
    def change(payload):
        payload["list"].append(2)

    payload = {"list": []}
    run(change, payload)
    assert payload == {"list": []}


REMINDER = {
    "to": "ann", "at": "2026-12-31T13:00:00+01:00", "copies": Decimal("2"), "weight": Decimal("0.1"),
    "attachment": Binary(b"\x00\xff"), "tags": {"a"},
}  # fmt: skip
NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)
PEN = {"item": "pen", "count": Decimal(2)}


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (Reminder, REMINDER, Reminder("ann", NOON, 2, Decimal("0.1"), b"\x00\xff", {"a"})),
        (Order, {"id": Decimal(7), "lines": [PEN]}, Order(id=7, lines=[Line(item="pen", count=2)])),
        (TypedDict("Note", {"text": str}), {"text": "x"}, {"text": "x"}),
        (dict[str, int], {"a": Decimal(1)}, {"a": 1}),
    ],
)
def test_a_payload_has_the_type_that_its_handler_declares(kind, payload, expected):
    assert run(typed(kind), payload) == expected


def test_the_context():
    def show(payload, context: HandlerContext):
        return context

    found = run(show, task_id="t-9", attempt=2, run=3, schedule_id="daily", attributes={"team": "x", "n": Decimal(1)})
    assert found == HandlerContext(
        action="x", task_id="t-9", attempt=2, run=3, schedule_id="daily", idempotency_key="t-9#3",
        due_at=datetime(2026, 12, 31, 11, 59, 30, tzinfo=UTC), deadline=NOW + timedelta(seconds=60),
        attributes={"team": "x", "n": 1},
    )  # fmt: skip


def test_a_handler_returns_or_raises_a_reschedule():
    def returns(payload):
        return Reschedule(after=20)

    async def later(payload):
        return Reschedule(after=20.0)

    for function in (returns, raises(Reschedule(after=timedelta(seconds=20))), later):
        with pytest.raises(Reschedule) as asked:
            run(function, permanent=(Exception,))
        assert asked.value.seconds == 20.0


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 10**400, "20", None, True, timedelta(seconds=-1)])
def test_the_time_of_a_reschedule_is_checked(after):
    with pytest.raises(InvalidInput, match=r"after: .* is not accepted; expected a number of seconds from 0 on"):
        Reschedule(after=after)


def test_a_second_parameter_gets_the_context():
    def by_name(payload, context=None):
        return context

    def of_its_own(payload, limit=10, *rest, flag=False, **more):
        return limit

    assert isinstance(run(by_name), HandlerContext)
    assert run(of_its_own) == 10


def test_a_coroutine_is_awaited():
    import asyncio

    async def slow(payload, context):
        await asyncio.sleep(0)
        return context.task_id

    def wrapped(payload, context):
        return slow(payload, context)

    assert run(slow) == run(wrapped) == "t-1"


def test_all_coroutines_run_in_one_event_loop_beside_each_other():
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    both = []

    async def meet(payload):
        both.append(asyncio.get_running_loop())
        while len(both) < 2:
            await asyncio.sleep(0.001)
        return id(both[0]), id(both[1])

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: run(meet), range(2)))
    assert found[0] == found[1] == (id(both[0]), id(both[0]))


# What every call runs in

WHO = ContextVar("WHO", default="nobody")


def called(function, *arounds, **values):
    one = a_task(**values)
    return Handler("x", function, around=arounds).run(one, a_context(one))


def test_arounds_are_entered_in_order_and_see_the_context_and_the_error():
    seen = []

    def noting(name):
        @contextmanager
        def noted(context):
            seen.append((name, context.action, context.task_id))
            try:
                yield
            except ValueError as error:
                seen.append((name, str(error)))
                raise
            seen.append((name, "done"))

        return noted

    assert called(lambda payload: 5, noting("outer"), noting("inner")) == 5
    assert seen == [("outer", "x", "t-1"), ("inner", "x", "t-1"), ("inner", "done"), ("outer", "done")]
    seen.clear()
    with pytest.raises(ValueError, match="no"):
        called(raises(ValueError("no")), noting("a"))
    assert seen == [("a", "x", "t-1"), ("a", "no")]


def test_an_around_that_suppresses_an_error_makes_no_success_of_it():
    with pytest.raises(ValueError, match="no"):
        called(raises(ValueError("no")), lambda context: suppress(ValueError))


def test_what_an_around_sets_is_seen_by_functions_and_coroutines():
    @contextmanager
    def named(context):
        token = WHO.set(context.task_id)
        yield
        WHO.reset(token)

    async def later(payload):
        return WHO.get()

    assert called(lambda payload: WHO.get(), named) == called(later, named) == "t-1"
    assert WHO.get() == "nobody"


def test_an_around_that_fails_fails_the_attempt():
    with pytest.raises(KeyError):
        called(lambda payload: 5, lambda context: {}["x"])
    with pytest.raises(ConfigurationError, match="is not a function"):
        around("x")


def test_the_arounds_of_a_module_are_around_each_of_its_handlers(a_module):
    name = a_module(
        """
from contextlib import contextmanager
from dynatick import around, task
seen = []
@around
@contextmanager
def noted(context):
    seen.append(context.action)
    yield
@task("a")
def a(payload): return list(seen)
@task("b")
async def b(payload): return list(seen)
"""
    )
    assert [one.run(a_task(), a_context()) for one in load_handlers(name)] == [["a"], ["a", "b"]]


# How it fails


class Shouting(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def in_capitals(cls, text: str) -> str:
        if not text.isupper():
            raise ValueError("expected capitals")
        return text


NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
NO_LINES = [f"payload.lines.{n}: Input should be a valid dictionary or instance of Line" for n in range(5)]


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        (Order, {}, "payload.id: Field required; payload.lines: Field required"),
        (Order, {"id": "secret", "lines": []}, f"payload.id: {NO_INTEGER}"),
        (Order, {"id": Decimal("1.5"), "lines": [{"item": "pen", "count": "secret"}]},
         "payload.id: Input should be a valid integer, got a number with a fractional part; "
         f"payload.lines.0.count: {NO_INTEGER}"),
        (Order, {"id": Decimal(1), "lines": [Decimal(5)] * 7}, f"{'; '.join(NO_LINES)}; and 2 more"),
        (Annotated[dict[str, int], Field(max_length=1)], {"a": Decimal(1), "b": Decimal(2)},
         "payload: Dictionary should have at most 1 item after validation, not more"),
        (Shouting, {"text": "secret"}, "payload.text: Value error, expected capitals"),
        (None, {"a": object()}, "payload: a object is not a value that a row can hold"),
    ],
)  # fmt: skip
def test_a_payload_that_does_not_fit_is_permanent(kind, payload, message):
    with pytest.raises(PermanentError) as caught:
        run(typed(kind), payload)
    assert str(caught.value) == message
    assert "secret" not in message
    assert caught.value.__cause__ is None  # pydantic's own text has the input in it


def test_messages_about_a_payload_are_limited_in_length():
    with pytest.raises(PermanentError) as caught:
        run(typed(dict[str, Literal[1]]), {f"{n}" * 5000: "x" for n in range(10)})
    assert len(str(caught.value)) < 2500


@pytest.mark.parametrize(
    ("error", "permanent", "expected", "message"),
    [
        (ValueError("no such user"), (), ValueError, "no such user"),
        (ValueError("no such user"), (ValueError,), PermanentError, "ValueError: no such user"),
        (KeyError("a"), (LookupError,), PermanentError, "KeyError: 'a'"),
        (OSError("gone"), (ValueError,), OSError, "gone"),
        (RetryableError("later"), (Exception,), RetryableError, "later"),
        (PermanentError("never"), (), PermanentError, "never"),
    ],
)
def test_errors(error, permanent, expected, message):
    with pytest.raises(expected) as caught:
        run(raises(error), permanent=permanent)
    assert type(caught.value) is expected
    assert str(caught.value) == message


class Plain:
    pass


def test_a_payload_type_that_pydantic_cannot_validate_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="handler x: has a payload that cannot be checked"):
        run(typed(Plain))


# How it is declared


def two_needed(payload, context, more): ...
def no_payload(): ...
def keyword_needed(payload, *, more): ...
def only_variable(*args): ...


def generator(payload):
    yield


async def async_generator(payload):
    yield


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (two_needed, r"handler x: should take \(payload\) or \(payload, context\)"),
        (no_payload, r"should take \(payload\)"),
        (keyword_needed, r"should take \(payload\)"),
        (only_variable, r"should take \(payload\)"),
        (generator, "is a generator, so calling it would do nothing"),
        (async_generator, "is a generator"),
        (Plain, "is a type; expected a function of a module"),
        (print, "is a builtin_function_or_method; expected"),
        (Shouting.in_capitals, "is a method; expected a function of a module"),
    ],
)
def test_a_function_that_cannot_be_a_handler_is_refused(function, message):
    with pytest.raises(ConfigurationError, match=message):
        task("x")(function)


def test_a_handler_needs_a_valid_name():
    with pytest.raises(ConfigurationError, match="is not a name"):

        @task
        def forgotten(payload): ...


@pytest.mark.parametrize("permanent", ["ValueError", (ValueError, "x"), [ValueError], (BaseException,)])
def test_permanent_errors_are_exception_types(permanent):
    with pytest.raises(ConfigurationError, match="has permanent errors that are no exception types"):
        task("x", permanent=permanent)


def test_a_declared_function_can_be_called_and_keeps_what_it_says_of_itself():
    def double(payload: dict[str, int], by: int = 2) -> int:
        """By two."""
        return payload["n"] * by

    declared = task("x")(double)
    assert (declared({"n": 4}), declared({"n": 4}, by=3)) == (8, 12)
    assert (declared.__name__, declared.__doc__, declared.action) == ("double", "By two.", "x")
    assert repr(declared).startswith("<task x: ")


# How handlers load


@pytest.fixture
def a_module(tmp_path, monkeypatch):
    """Writes a module and returns its name, which no other test uses."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def write(text):
        name = f"written_{tmp_path.name}_{len(names)}".replace("-", "_")
        names.append(name)
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_a_modules_handlers_are_found(a_module):
    other = a_module(
        """
from dynatick import task
@task("other")
def other(payload): return "other"
@task("hidden")
def hidden(payload): return "hidden"
"""
    )
    name = a_module(
        f"""
from dynatick import task
from {other} import other
import {other} as module
@task("mine")
def mine(payload): return "mine"
alias = mine
def helper(payload): ...
_mark = 5
"""
    )
    found = {one.name: one.run(a_task(), a_context()) for one in load_handlers(name)}
    assert found == {"mine": "mine", "other": "other"}


@pytest.mark.parametrize("seconds", [0, -1, 901, 0.5, 60.0, True, "60"])
def test_a_handler_takes_a_whole_number_of_seconds(seconds):
    with pytest.raises(ConfigurationError) as refused:
        task("slow", timeout_seconds=seconds)
    assert str(refused.value) == (
        f"handler slow: has a timeout_seconds of {seconds!r}; expected a whole number of seconds from 1 to 900"
    )


def test_further_decorators_are_applied_and_keep_what_the_handler_declares(a_module):
    name = a_module(
        """
from functools import wraps
from dynatick import task
def loudly(function):
    @wraps(function)
    def call(payload, context): return function(payload, context).upper()
    return call
@loudly
@task("outside", permanent=(ValueError,), timeout_seconds=60)
def outside(payload: dict, context): return "x"
@task("inside")
@loudly
def inside(payload: dict, context): return "y"
"""
    )
    found = {one.name: (one.run(a_task(), a_context()), one.reserved_seconds(a_task())) for one in load_handlers(name)}
    assert found == {"outside": ("X", 60), "inside": ("Y", None)}


def test_a_handler_may_take_no_longer_than_the_longest_that_is_known(a_module):
    name = a_module("from dynatick import task\n@task('slow', timeout_seconds=60)\ndef slow(payload): ...")
    assert len(load_handlers(name, 60)) == 1
    with pytest.raises(ConfigurationError, match="handler slow: has a timeout_seconds of 60; expected at most 59"):
        load_handlers(name, 59)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("1/0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("from dynatick import task\ntask('x y')", "ConfigurationError: action: 'x y' is not a name"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_with_the_cause(a_module, text, message):
    name = a_module(text)
    with pytest.raises(ConfigurationError) as caught:
        load_handlers(name)
    assert str(caught.value).startswith(f"HandlersModule: the module '{name}' cannot be imported: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(payload: Unknown): ...",
         "handler a: has a payload of an unknown type, Unknown: name 'Unknown' is not defined"),
        ("def f(context: HandlerContext): ...", "handler a: takes the payload first and the context second"),
        ("def f(payload): ...\n@task('b')\ndef f(payload): ...",
         "handler b: is a function f, and so is a; rename one of them"),
    ],
)  # fmt: skip
def test_an_invalid_handler_is_refused_at_the_import(a_module, text, message):
    name = a_module(
        f"from __future__ import annotations\nfrom dynatick import HandlerContext, task\n@task('a')\n{text}"
    )
    with pytest.raises(ConfigurationError) as caught:
        load_handlers(name)
    assert message in str(caught.value)


def test_slow_imports_happen_only_when_needed():
    program = """
import sys
from datetime import UTC, datetime
from dynatick.actions import build_actions, handlers
build_actions(handlers_module=None, clock=lambda: datetime.now(UTC))
assert not {"pydantic", "asyncio", "urllib3", "ssl", "boto3", "aws_lambda_powertools"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# What it logs


@pytest.mark.parametrize("permanent", [(), (KeyError,)])
def test_the_traceback_of_an_error_is_logged(permanent, monkeypatch):
    said = []
    monkeypatch.setattr(handlers_module._logger, "error", lambda message, **options: said.append(options))
    with pytest.raises(PermanentError if permanent else KeyError):
        run(raises(KeyError("x")), permanent=permanent, task_id="t-7", attempt=2)
    (options,) = said
    assert options["exc_info"] is True
    extra = options["extra"]
    assert (extra["action"], extra["task_id"], extra["attempt"], extra["handler"]) == ("handler_raised", "t-7", 2, "x")
    assert extra["idempotency_key"]


def test_errors_that_a_handler_raises_on_purpose_are_not_logged(monkeypatch):
    monkeypatch.setattr(handlers_module._logger, "error", lambda message, **options: pytest.fail(message))
    for error in (PermanentError("no"), RetryableError("not now"), Reschedule(after=5)):
        with pytest.raises(type(error)):
            run(raises(error))
