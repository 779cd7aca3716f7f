"""Handlers: declaration, arguments, errors and loading."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from boto3.dynamodb.types import Binary
from pydantic import AfterValidator, BaseModel, Field
from tests.unit.actions.support import NOW, a_context, a_module, a_task
from typing_extensions import TypedDict

from dynatick.actions import handlers as handlers_module
from dynatick.actions.handlers import Handler, HandlerContext, around, load_handlers
from dynatick.domain.completion import completion_token
from dynatick.errors import ConfigurationError, InvalidInput, PermanentError, Reschedule, RetryableError
from dynatick.task_function import task

if TYPE_CHECKING:
    from somewhere import Unknown


def run(function, payload=None, permanent=(), arounds=(), **values):
    one = a_task(payload, **values)
    return Handler("x", function, permanent, around=arounds).run(one, a_context(one))


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


def typed(kind=None):
    """A handler that returns its payload, which is declared as ``kind``."""

    def handle(payload) -> Unknown:  # only the payload's annotation is resolved
        return payload

    if kind is not None:
        handle.__annotations__["payload"] = kind
    return handle


RAW = {"n": Decimal("3"), "f": Decimal("0.5"), "b": Binary(b"\x00"), "s": {"x"}, "list": [{"n": Decimal("1")}]}
PLAIN = {"n": 3, "f": 0.5, "b": b"\x00", "s": {"x"}, "list": [{"n": 1}]}
REMINDER = {
    "to": "ann", "at": "2026-12-31T13:00:00+01:00", "copies": Decimal("2"), "weight": Decimal("0.1"),
    "attachment": Binary(b"\x00\xff"), "tags": {"a"},
}  # fmt: skip
NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)
PEN = {"item": "pen", "count": Decimal(2)}


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        *((kind, RAW, PLAIN) for kind in (None, dict, dict[str, object], Mapping[str, Any], Any)),
        (Reminder, REMINDER, Reminder("ann", NOON, 2, Decimal("0.1"), b"\x00\xff", {"a"})),
        (Order, {"id": Decimal(7), "lines": [PEN]}, Order(id=7, lines=[Line(item="pen", count=2)])),
        (TypedDict("Note", {"text": str}), {"text": "x"}, {"text": "x"}),
        (dict[str, int], {"a": Decimal(1)}, {"a": 1}),
    ],
)
def test_a_payload_is_plain_python_or_has_the_type_that_its_handler_declares(kind, payload, expected):
    found = run(typed(kind), payload)
    assert found == expected
    if expected is PLAIN:
        found["list"].append(2)
        assert payload["list"] == [{"n": 1}], "the handler has a copy"


def test_a_second_parameter_gets_the_context():
    def show(payload, context: HandlerContext):
        return context

    values = {
        "task_id": "t-9",
        "attempt": 2,
        "run": 3,
        "schedule_id": "daily",
        "subject": "customer:7",
        "limit_key": "customer:7",
    }
    expected = HandlerContext(
        action="x", **values, idempotency_key="t-9#3", due_at=datetime(2026, 12, 31, 11, 59, 30, tzinfo=UTC),
        deadline=NOW + timedelta(seconds=60), attributes={"team": "x", "n": 1},
        completion_token=completion_token(None, "t-9"),
    )  # fmt: skip
    for function in (show, lambda payload, context=None: context):
        assert run(function, **values, attributes={"team": "x", "n": Decimal(1)}) == expected
    assert "token" not in repr(expected), "it is a secret"
    assert run(lambda payload, limit=10, *rest, flag=False, **more: limit) == 10, "a parameter of its own"


def test_a_handler_returns_or_raises_a_reschedule():
    async def later(payload):
        return Reschedule(after=20.0)

    for function in (lambda payload: Reschedule(after=20), raises(Reschedule(after=timedelta(seconds=20))), later):
        with pytest.raises(Reschedule) as asked:
            run(function, permanent=(Exception,))
        assert asked.value.seconds == 20.0


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 10**400, "20", None, True, timedelta(seconds=-1)])
def test_the_time_of_a_reschedule_is_checked(after):
    with pytest.raises(InvalidInput, match=r"after: .* is not accepted; expected a number of seconds from 0 on"):
        Reschedule(after=after)


@pytest.mark.parametrize("wait", [300, 300.0, Decimal("3e2"), timedelta(minutes=5)])
def test_the_wait_until_a_retry_is_a_number_of_seconds_or_a_timedelta(wait):
    assert RetryableError("sold out", retry_after=wait).retry_after == 300
    assert Reschedule(after=wait).seconds == 300


def test_a_wait_until_a_retry_that_can_be_none():
    for wait in (None, 0, -5.0, float("inf")):  # one may be over, or without end: the retry policy bounds it
        assert RetryableError("sold out", retry_after=wait).retry_after == wait


@pytest.mark.parametrize("wait", ["300", "soon", True, [1], float("nan"), Decimal("NaN"), Decimal("sNaN"), 10**400])
def test_any_other_wait_until_a_retry_is_refused(wait):
    with pytest.raises(
        InvalidInput, match=r"^retry_after: .* is not accepted; expected a number of seconds, or a timed"
    ):
        RetryableError("sold out", retry_after=wait)


def test_coroutines_are_awaited_in_one_event_loop_beside_each_other():
    both = []

    async def meet(payload, context):
        both.append(asyncio.get_running_loop())
        while len(both) < 2:
            await asyncio.sleep(0.001)  # wait: between two looks at the condition
        return context.task_id, id(both[0]), id(both[1])

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(run, (meet, lambda payload, context: meet(payload, context))))
    assert found[0] == found[1] == ("t-1", id(both[0]), id(both[0]))


# What every call runs in


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

    assert run(lambda payload: 5, arounds=[noting("outer"), noting("inner")]) == 5
    assert seen == [("outer", "x", "t-1"), ("inner", "x", "t-1"), ("inner", "done"), ("outer", "done")]
    seen.clear()
    with pytest.raises(ValueError, match="no"):
        run(raises(ValueError("no")), arounds=[noting("a")])
    assert seen == [("a", "x", "t-1"), ("a", "no")]


def test_a_handler_sees_what_an_around_sets():
    """That arounds are found in a module is shown by the documentation's, in ``test_docs``."""
    who = ContextVar("who", default="nobody")

    @contextmanager
    def named(context):
        token = who.set(context.action)
        yield
        who.reset(token)

    async def later(payload):
        return who.get()

    assert run(later, arounds=[named]) == run(lambda payload: who.get(), arounds=[named]) == "x"
    assert who.get() == "nobody"


def test_an_around_that_fails_fails_the_attempt_and_one_that_suppresses_an_error_makes_no_success_of_it():
    with pytest.raises(ValueError, match="no"):
        run(raises(ValueError("no")), arounds=[lambda context: suppress(ValueError)])
    with pytest.raises(KeyError):
        run(lambda payload: 5, arounds=[lambda context: {}["x"]])
    with pytest.raises(ConfigurationError, match="is not a function"):
        around("x")


# How it fails


CAPITALS = Annotated[str, AfterValidator(raises(ValueError("expected capitals")))]
NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
NO_LINES = [f"payload.lines.{n}: Input should be a valid dictionary or instance of Line" for n in range(5)]


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        (Order, {}, "payload.id: it is missing; payload.lines: it is missing"),
        (Order, {"id": "secret", "lines": []}, f"payload.id: {NO_INTEGER}"),
        (Order, {"id": Decimal("1.5"), "lines": [{"item": "pen", "count": "secret"}]},
         "payload.id: Input should be a valid integer, got a number with a fractional part; "
         f"payload.lines.0.count: {NO_INTEGER}"),
        (Order, {"id": Decimal(1), "lines": [Decimal(5)] * 7}, f"{'; '.join(NO_LINES)}; and 2 more"),
        (Annotated[dict[str, int], Field(max_length=1)], {"a": Decimal(1), "b": Decimal(2)},
         "payload: Dictionary should have at most 1 item after validation, not more"),
        (dict[str, CAPITALS], {"text": "secret"}, "payload.text: Value error, expected capitals"),
        (None, {"a": object()}, "payload: a object is not a value that a row can hold"),
    ],
)  # fmt: skip
def test_a_payload_that_does_not_fit_is_permanent(kind, payload, message):
    with pytest.raises(PermanentError) as caught:
        run(typed(kind), payload)
    assert str(caught.value) == message
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
        (Reschedule(after=5), (), Reschedule, str(Reschedule(after=5))),
    ],
)
def test_errors_pass_or_are_permanent_and_those_raised_on_purpose_are_not_logged(
    error, permanent, expected, message, monkeypatch
):
    logged = []
    monkeypatch.setattr(handlers_module._logger, "error", lambda message, **options: logged.append(options))
    with pytest.raises(expected) as caught:
        run(raises(error), permanent=permanent, task_id="t-7", attempt=2)
    assert (type(caught.value), str(caught.value)) == (expected, message)
    ids = {"task_id": "t-7", "attempt": 2, "run": 1, "turn": 0, "idempotency_key": "t-7#1", "handler": "x"}
    on_purpose = isinstance(error, (RetryableError, PermanentError, Reschedule))
    assert logged == ([] if on_purpose else [{"exc_info": True, "extra": {"action": "handler_raised", **ids}}])


# How it is declared


class Plain: ...


def good(payload): ...


def generator(payload):
    yield


async def async_generator(payload):
    yield


SHAPE, SECONDS = r"should take \(payload\)", "expected a whole number of seconds from 1 to 900"


@pytest.mark.parametrize(
    ("function", "declared", "message"),
    [
        (lambda payload, context, more: None, {}, rf"handler x: {SHAPE} or \(payload, context\)"),
        *((function, {}, SHAPE) for function in (lambda: None, lambda payload, *, more: None, lambda *args: None)),
        (generator, {}, "is a generator, so calling it would do nothing"),
        (async_generator, {}, "is a generator"),
        (Plain, {}, "is a type; expected a function of a module"),
        (print, {}, "is a builtin_function_or_method; expected"),
        (Order.model_validate, {}, "is a method; expected a function of a module"),
        *((good, {"permanent": kinds}, "has permanent errors that are no exception types")
          for kinds in ("ValueError", (ValueError, "x"), [ValueError], (BaseException,))),
        *((good, {"timeout_seconds": seconds}, f"handler x: has a timeout_seconds of {seconds!r}; {SECONDS}")
          for seconds in (0, -1, 901, 0.5, 60.0, True, "60")),
    ],
)  # fmt: skip
def test_a_function_that_cannot_be_a_handler_is_refused(function, declared, message):
    with pytest.raises(ConfigurationError, match=message):
        task("x", **declared)(function)


def test_a_handler_needs_a_valid_name_and_a_payload_that_can_be_validated():
    with pytest.raises(ConfigurationError, match="is not a name"):
        task(good)
    with pytest.raises(ConfigurationError, match="handler x: has a payload that cannot be checked"):
        run(typed(Plain))


def test_a_declared_function_can_be_called_and_keeps_what_it_says_of_itself():
    def double(payload: dict[str, int], by: int = 2) -> int:
        """Doubles a number."""
        return payload["n"] * by

    declared = task("x")(double)
    assert (declared({"n": 4}, by=3), declared.__name__, declared.__doc__) == (12, "double", "Doubles a number.")
    assert repr(declared).startswith("<task x: ")


# How handlers load


def results(module):
    return {one.name: one.run(a_task(), a_context()) for one in load_handlers(module)}


def test_the_handlers_of_a_module_are_found_by_their_names_in_it():
    other = a_module("""
from dynatick import task
@task("other")
def other(payload): return "other"
@task("hidden")
def hidden(payload): return "hidden"
""")
    text = """
from dynatick import task
@task("mine")
def mine(payload): return "mine"
alias = mine
def helper(payload): ...
_mark = 5
"""
    assert results(a_module(text, module=other, other=other.other)) == {"mine": "mine", "other": "other"}


def test_a_payload_can_be_a_generic_model_that_its_annotation_makes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "generic_handlers.py").write_text("""
from __future__ import annotations
from typing import Generic, TypeVar
from pydantic import BaseModel
from dynatick import task
T = TypeVar("T")
class Page(BaseModel, Generic[T]):
    items: list[T]
@task("send-page")
def send_page(page: Page[int]) -> int: return len(page.items)
""")
    assert [one.name for one in load_handlers("generic_handlers")] == ["send-page"]


def test_further_decorators_are_applied_and_keep_what_the_handler_declares():
    module = a_module("""
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
""")
    assert results(module) == {"outside": "X", "inside": "Y"}
    assert [one.reserved_seconds(a_task()) for one in load_handlers(module, 60)] == [60, None]
    with pytest.raises(ConfigurationError, match="handler outside: has a timeout_seconds of 60; expected at most 59"):
        load_handlers(module, 59)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("1/0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("from dynatick import task\ntask('x y')", "ConfigurationError: action: 'x y' is not a name"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_with_the_cause(text, message, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_handlers.py").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_handlers("broken_handlers")
    assert str(caught.value).startswith(f"HandlersModule: the module 'broken_handlers' cannot be imported: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(payload: Unknown): ...",
         "handler a: has a payload of an unknown type, Unknown: name 'Unknown' is not defined"),
        ("def f(context: HandlerContext): ...", "handler a: takes the payload first and the context second"),
        ("def f(numbers: list[int]): ...",
         "handler a: has a payload of the type list\\[int\\]; expected a map, such as a dataclass with a field for it"),
        ("def f(number: int): ...", "handler a: has a payload of the type int; expected a map"),
        ("def f(payload): ...\n@task('b')\ndef f(payload): ...",
         "handler b: is a function f, and so is a; rename one of them"),
    ],
)  # fmt: skip
def test_an_invalid_handler_is_refused_at_the_import(text, message):
    declared = f"from __future__ import annotations\nfrom dynatick import HandlerContext, task\n@task('a')\n{text}"
    with pytest.raises(ConfigurationError, match=message):
        load_handlers(a_module(declared))
