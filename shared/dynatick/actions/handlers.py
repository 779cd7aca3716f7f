"""Actions that users write: Python functions, declared by name (``dynatick.task_function`` has the decorator).

The function's annotation decides the type of the payload. Without one, or with ``dict`` or ``Mapping``, the payload is
a dict of plain Python values (see ``plain_value.plain``). Any other type that pydantic can validate (a dataclass, a
TypedDict, a pydantic model) is validated first: an interface refuses a payload that does not fit (``payload_schema``),
and a task that has one in the table fails for good, unless it is of an older type that is upgraded. pydantic is
imported when the first such task runs, or after the first pass of a process: its import is slow, and would delay a cold
start.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, get_origin, get_type_hints

from dynatick.actions.handler_loop import result_of
from dynatick.actions.payload import field_problems, invalid_payload
from dynatick.actions.payload_schema import check_schema, schema_of, with_upgraded
from dynatick.actions.plain_value import plain
from dynatick.actions.registry import check_name
from dynatick.domain.completion import MAX_FOLLOW_UPS, completion_token, follow_up_id
from dynatick.domain.task import Task, check_payload, check_timeout
from dynatick.engine.ports import ActionContext, described, trace_of
from dynatick.errors import ActionError, ConfigurationError, InvalidInput, PermanentError, Reschedule, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from dynatick.domain.buckets import Time

_logger = logging.getLogger("dynatick.actions")
_DECLARATION = "__dynatick_handler__"
_AROUND = "__dynatick_around__"
_RAW = (dict, Mapping, MutableMapping)
_NO_MAPS = (list, tuple, set, frozenset, str, bytes, int, float, bool, type(None))

Given = TypeVar("Given", contravariant=True)
Inserted = TypeVar("Inserted", covariant=True)  # a TaskView
Function = TypeVar("Function", bound=Callable[..., object])


class Followed(Protocol[Given, Inserted]):
    """A function that is declared by ``@task``, as far as it is asked for a follow-up."""

    def insert_follow_up(
        self,
        payload: Given,
        *,
        task_id: str,
        of: str,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        limit_key: str | None = None,
    ) -> Inserted: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HandlerContext:
    """What a handler gets beside the payload."""

    action: str
    task_id: str
    attempt: int  # counted from 1; goes up at each retry, and starts again at a redrive or a further turn
    run: int  # counted from 1; goes up at each redrive or run-now
    turn: int = 0  # how often this run was rescheduled by its handler; 0 at first
    due_at: datetime  # when the task should run, in UTC
    idempotency_key: str  # the same for every attempt of one run and turn
    deadline: datetime  # when this process ends; don't start work that can't end before
    schedule_id: str | None = None  # of an occurrence: its schedule
    subject: str | None = None  # what the task is about, such as customer:4711
    limit_key: str | None = None  # what limits it
    traceparent: str | None = None  # the span that the task comes from, in the form of W3C Trace Context
    attributes: Mapping[str, object] = field(default_factory=dict)  # the row's other attributes
    follow_ups: list[str] = field(default_factory=list)  # ids of those that this attempt has scheduled
    completion_token: str = field(default="", repr=False)  # of this attempt, if CompleteLater is returned; a secret

    def schedule(
        self,
        handler: Followed[Given, Inserted],
        payload: Given,
        *,
        name: str,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        limit_key: str | None = None,
    ) -> Inserted:
        """Inserts a follow-up: a task that comes from this one. Without a time, it runs as soon as it can.

        Its id is made of the idempotency key and ``name``, so that a repeated attempt inserts no second: the first
        stays as it is. ``limit_key``: instead of that of ``@task``. Returns it, as a TaskView. Raises InvalidInput for
        a name that this attempt has used; what ``handler.schedule`` raises; and TaskExists if another task has the id.
        """
        task_id = follow_up_id(self.idempotency_key, name)
        if task_id in self.follow_ups:
            raise InvalidInput("name", name, "expected another name: this attempt has scheduled one of this name")
        if len(self.follow_ups) >= MAX_FOLLOW_UPS:
            expected = f"expected at most {MAX_FOLLOW_UPS} follow-ups of an attempt; a batch takes any number"
            raise InvalidInput("name", name, expected)
        if not hasattr(handler, "insert_follow_up"):
            raise InvalidInput("handler", handler, "expected a function that is declared by @task")
        view = handler.insert_follow_up(
            payload, task_id=task_id, of=self.task_id, due_at=due_at, delay=delay, limit_key=limit_key
        )
        self.follow_ups.append(task_id)
        return view


@dataclass(frozen=True, slots=True)
class _Declaration:
    """Set by the decorator as an attribute of the function."""

    name: str
    permanent: tuple[type[Exception], ...]
    timeout_seconds: int | None
    upgrade: Upgrade | None


Upgrade = Callable[[Any], object]
"""Makes a payload of the handler's present type of one of the older type that its parameter is annotated with."""

Around = Callable[[HandlerContext], AbstractContextManager[object]]


def around(function: Callable[[HandlerContext], AbstractContextManager[object]]) -> Around:
    """Declares a context manager that every call of a handler runs in: for tracing, or for what handlers share.

    It takes the context. All that the handlers module has by name are entered, in the order of their definition, and
    see the exceptions of the handler; one that suppresses an exception does not make the task succeed.
    """
    if not callable(function):
        raise ConfigurationError("around", f"{shown(function)} is not a function that takes the context")
    setattr(function, _AROUND, True)
    return function


def declare(
    name: str,
    *,
    permanent: type[Exception] | tuple[type[Exception], ...],
    timeout_seconds: int | None,
    upgrade: Upgrade | None = None,
) -> Callable[[Function], Function]:
    """Marks a function as the handler of the action ``name``; see ``task``. Raises ConfigurationError."""
    if upgrade is not None and not inspect.isfunction(upgrade):
        raise _unfit(name, f"has as its upgrade a {type(upgrade).__name__}; expected a function of the old payload")
    seconds = _seconds(name, timeout_seconds)
    declaration = _Declaration(check_name(name), _exception_types(name, permanent), seconds, upgrade)

    def mark(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise _unfit(name, f"is a {type(function).__name__}; expected a function of a module")
        _check_shape(name, function)
        _check_not_hidden(name, function)
        setattr(function, _DECLARATION, declaration)
        return function

    return mark


class Handler:
    """A declared function as an action; see ``load_handlers``."""

    def __init__(self, name: str, function: Callable[..., object],
                 permanent: tuple[type[Exception], ...] = (), timeout_seconds: int | None = None,
                 around: Sequence[Around] = (), upgrade: Upgrade | None = None) -> None:  # fmt: skip
        self.name = name
        self._around = around
        self._timeout_seconds = timeout_seconds
        self._function = function
        self._permanent = permanent
        parameters = _check_shape(name, function)
        self._wants_context = len(parameters) > 1
        self._payload_type: Any = _annotation(name, function, parameters[0])
        if self._payload_type is HandlerContext:
            raise _unfit(name, "takes the payload first and the context second")
        if (get_origin(self._payload_type) or self._payload_type) in _NO_MAPS:
            wanted = "expected a map, such as a dataclass with a field for it"
            raise _unfit(name, f"has a payload of the type {_name_of(self._payload_type)}; {wanted}")
        self._upgrade, self._old_type = upgrade, None
        if upgrade is not None:
            if _is_raw(self._payload_type):
                raise _unfit(name, "has an upgrade, and takes any payload; annotate its payload with the present type")
            self._old_type = _annotation(name, upgrade, _check_shape(name, upgrade)[0])

    def reserved_seconds(self, task: Task) -> int | None:
        """The declared ``timeout_seconds``, or None."""
        return self._timeout_seconds

    def payload_schema(self) -> str | None:
        """The payload's JSON Schema as text, for the check at insertion; None: any map fits, or the schema is unknown.

        Raises ConfigurationError for a type that pydantic can't validate.
        """
        if self._adapter is None:
            return None
        if self._upgrade is None:
            return self._present_schema
        return with_upgraded(self._present_schema, self._old_schema)

    def run(self, task: Task, context: ActionContext, instead: Callable[[Any], object] | None = None) -> object:
        """Calls the function and returns its result; or that of ``instead``, which gets the payload only.

        Raises Reschedule if the function raises or returns one; PermanentError for a payload that does not fit and for
        a declared permanent error; other exceptions pass.
        """
        try:
            payload = self.payload_of(task)
            result = self._call(payload, task, context) if instead is None else awaited(instead(payload))
            if isinstance(result, Reschedule):
                raise result
            return result
        except (ActionError, Reschedule):
            raise  # its type decides what follows
        except Exception as error:
            self._log_raised(error, task, context)
            if isinstance(error, self._permanent):
                raise PermanentError(described(error)) from error
            raise

    def encode(self, payload: object) -> Mapping[str, object]:
        """A payload as a row holds it, from a value of the function's type.

        Raises InvalidInput, without the values, for one that the handler would refuse.
        """
        if self._adapter is None:
            return check_payload(payload)
        from pydantic import ValidationError

        dump = partial(self._adapter.dump_python, payload, by_alias=True, round_trip=True, warnings="none")
        try:
            encoded, unencoded = dump(mode="json"), dump(mode="python")
        except ValueError as error:
            raise InvalidInput("payload", f"a {type(payload).__name__}", f"JSON cannot hold it: {error}") from None
        if not isinstance(encoded, dict):
            raise InvalidInput("payload", f"a {type(payload).__name__}", f"expected {_name_of(self._payload_type)}")
        _check_and_sort(unencoded, encoded, "payload")
        try:
            arrived = _validated(self._adapter, encoded)
        except ValidationError as error:
            raise invalid_payload(error, encoded) from None
        if not _equal(arrived, payload) and self._present_schema is not None:
            whole = dump(mode="json")
            if _add_left_out(payload, arrived, whole):
                check_schema(self._present_schema, whole)
        return encoded

    def _log_raised(self, error: Exception, task: Task, context: ActionContext) -> None:
        details = {
            "action": "handler_raised",
            "task_id": task.task_id,
            "attempt": context.attempt,
            "run": context.run,
            "turn": context.turn,
            "idempotency_key": context.idempotency_key,
            "handler": self.name,
        }
        try:
            _logger.error("a handler raised an error", exc_info=True, extra=details)
        except Exception:  # its traceback can't be formatted
            details |= {"problem": described(error), "trace": trace_of(error)}
            _logger.error("a handler raised an error that can't be formatted", extra=details)

    def _call(self, payload: object, task: Task, context: ActionContext) -> object:
        if not self._around and not self._wants_context:
            return awaited(self._function(payload))
        given = _context(self.name, task, context)
        arguments = (payload, given) if self._wants_context else (payload,)
        failed: BaseException | None = None
        result: object = None
        with ExitStack() as stack:
            for around in self._around:
                stack.enter_context(around(given))
            try:
                result = awaited(self._function(*arguments))
            except BaseException as error:
                failed = error
                raise
        if failed is not None:  # what is around it has suppressed it
            raise failed
        return result

    def payload_of(self, task: Task) -> object:
        """The task's payload as the function gets it, upgraded if it is an old one.

        Raises PermanentError for one that does not fit; exceptions of the upgrade as ``run`` those of the function.
        """
        try:
            raw = plain(task.payload)
        except ValueError as error:
            raise PermanentError(f"payload: {error}") from None
        if self._adapter is None:
            return raw
        from pydantic import ValidationError

        given = raw if self._upgrade is None or not self._is_old(raw) else self._upgraded(raw, self._upgrade)
        try:
            return _validated(self._adapter, given)
        except ValidationError as error:
            lines = "; ".join(": ".join(filter(None, problem)) for problem in field_problems(error))
            raise PermanentError(lines if given is raw else f"upgraded {lines}") from None

    def _is_old(self, raw: object) -> bool:
        """Whether a payload is of the older type, and not of the present one."""
        return not _is_of(self._adapter, self._present_schema, raw) and _is_of(self._old_adapter, self._old_schema, raw)

    def _upgraded(self, raw: object, upgrade: Upgrade) -> object:
        try:
            return upgrade(raw if self._old_adapter is None else _validated(self._old_adapter, raw))
        except self._permanent as error:
            raise PermanentError(described(error)) from error

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        """The payload's validator, built once; None for a payload that needs no validation."""
        return self._adapter_of(self._payload_type)

    @cached_property
    def _old_adapter(self) -> TypeAdapter[Any] | None:
        """The same for the payload that the upgrade takes."""
        return self._adapter_of(self._old_type)

    @cached_property
    def _present_schema(self) -> str | None:
        return None if self._adapter is None else schema_of(self._adapter)

    @cached_property
    def _old_schema(self) -> str | None:
        return None if self._old_adapter is None else schema_of(self._old_adapter)

    def _adapter_of(self, kind: Any) -> TypeAdapter[Any] | None:
        if _is_raw(kind):
            return None
        from pydantic import PydanticUserError, TypeAdapter

        try:
            return TypeAdapter(kind)
        except (PydanticUserError, NameError) as error:
            reason = str(error).split("\n", 1)[0]
            raise _unfit(self.name, f"has a payload that cannot be checked, {_name_of(kind)}: {reason}") from error


def load_handlers(module: str | ModuleType, max_timeout_seconds: int | None = None) -> Sequence[Handler]:
    """The handlers in a module's namespace, declared there or imported. ``module``: one that is imported, or its name.

    Raises ConfigurationError if the module can't be imported, with the cause, and for a handler whose timeout is longer
    than ``max_timeout_seconds`` (None: not known), which could never run.
    """
    try:
        module = import_module(module) if isinstance(module, str) else module
    except Exception as error:  # the user's own code: it may raise anything
        cause = f"{type(error).__name__}: {error}"
        problem = f"the module {shown(module)} cannot be imported: {cause}"
        raise ConfigurationError("HandlersModule", problem) from error
    found: dict[int, Handler] = {}
    values = list(vars(module).values())  # pydantic adds a generic type to the module when an annotation is resolved
    arounds = [value for value in values if callable(value) and getattr(value, _AROUND, False) is True]
    for function in values:
        # The function as the module has it: further decorators may wrap it, and they copy the attribute.
        declaration = getattr(function, _DECLARATION, None) if callable(function) else None
        if isinstance(declaration, _Declaration) and id(function) not in found:
            _seconds(declaration.name, declaration.timeout_seconds, max_timeout_seconds)
            found[id(function)] = Handler(
                declaration.name,
                function,
                declaration.permanent,
                declaration.timeout_seconds,
                arounds,
                declaration.upgrade,
            )
    return tuple(found.values())


def _exception_types(name: str, permanent: object) -> tuple[type[Exception], ...]:
    kinds = permanent if isinstance(permanent, tuple) else (permanent,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise _unfit(name, "has permanent errors that are no exception types, such as ValueError")
    return kinds


def _seconds(name: str, timeout: object, maximum: int | None = None) -> int | None:
    try:
        return None if timeout is None else check_timeout(timeout, maximum)
    except InvalidInput as error:
        raise _unfit(name, f"has a timeout_seconds of {shown(timeout)}; {error.expected}") from None


def _check_shape(name: str, function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters that get an argument: the payload's, and the context's if there is one."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _unfit(name, "is a generator, so calling it would do nothing; remove its yield")
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    # A second parameter with a default gets no argument, unless its name is context.
    filled = positional[:1] + [p for p in positional[1:2] if p.default is p.empty or p.name == "context"]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in variable]
    if not filled or any(p not in filled for p in needed):
        raise _unfit(name, "should take (payload) or (payload, context)")
    return filled


def _check_not_hidden(name: str, function: Callable[..., object]) -> None:
    """Refuses a second function of the same Python name, which would silently replace the first."""
    earlier = function.__globals__.get(function.__name__)
    declaration = getattr(earlier, _DECLARATION, None)
    at_top = function.__qualname__ == function.__name__
    if at_top and isinstance(declaration, _Declaration) and declaration.name != name:
        raise _unfit(name, f"is a function {function.__name__}, and so is {declaration.name}; rename one of them")


def _annotation(name: str, function: Callable[..., object], parameter: inspect.Parameter) -> object:
    """The payload's type. Other annotations are not resolved: some exist for type checkers only."""
    written = parameter.annotation
    if not isinstance(written, str):
        return written
    holder = SimpleNamespace(__annotations__={"payload": written})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(holder, globalns=names, include_extras=True)["payload"]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise _unfit(name, f"has a payload of an unknown type, {written}: {error}") from None


def _is_raw(kind: object) -> bool:
    """Whether a payload of this type needs no validation: every payload is a map with text for names."""
    if kind in (inspect.Parameter.empty, object, Any, *_RAW):
        return True
    if get_origin(kind) not in _RAW:
        return False
    names, values = get_args(kind)
    return names is str and values in (object, Any)


def _is_of(adapter: TypeAdapter[Any] | None, schema: str | None, raw: object) -> bool:
    """Whether a payload is of a type, and has no field that the type does not name."""
    from pydantic import ValidationError

    try:
        if schema is not None:
            check_schema(schema, raw)
        if adapter is not None:
            _validated(adapter, raw)
    except (InvalidInput, ValidationError):
        return False
    return True


def _validated(adapter: TypeAdapter[Any], raw: object) -> Any:
    """A value of the type. Where the type is strict, a time, a UUID and the like are taken from text as from JSON."""
    from pydantic import ValidationError

    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        try:
            return adapter.validate_json(json.dumps(raw))
        except ValidationError as other:
            raise min(error, other, key=ValidationError.error_count) from None  # the fewer are what is wrong
        except (TypeError, ValueError):
            raise error from None


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # such as of an array, which compares its elements
        return False


def _add_left_out(given: object, arrived: object, encoded: object) -> int:
    """Adds to ``encoded`` what pydantic has left out: fields of a subclass, and names that a TypedDict does not have.
    Returns their number."""
    if isinstance(encoded, list) and isinstance(given, Sequence) and isinstance(arrived, Sequence):
        return sum(_add_left_out(*parts) for parts in zip(given, arrived, encoded, strict=False))
    if not isinstance(encoded, dict):
        return 0
    values, kept = _values(given), _values(arrived)
    found = sum(_add_left_out(values[name], kept[name], encoded.get(name)) for name in kept if name in values)
    if isinstance(given, (type(arrived), Mapping)) and len(kept) < len(values):
        left_out = {str(name): str(value) for name, value in values.items() if name not in kept}
        encoded.update(left_out)
        found += len(left_out)
    return found


def _values(of: object) -> Mapping[str, object]:
    """The fields of a value by their names in a payload."""
    if isinstance(of, Mapping):
        return of
    if is_dataclass(of):
        return {one.name: getattr(of, one.name, None) for one in fields(of)}
    model: Mapping[str, Any] = getattr(type(of), "model_fields", {})
    return {one.serialization_alias or name: getattr(of, name, None) for name, one in model.items() if not one.exclude}


def _check_and_sort(given: object, encoded: object, field: str) -> None:
    """Sorts what was a set: each process has its own order of the members, and ids are derived from payloads. Refuses
    NaN and infinity that pydantic has made null, as it does where the type says nothing of the value, and secrets that
    it has hidden. The others it keeps, and an insert refuses them."""
    if encoded is None and isinstance(given, float):
        raise InvalidInput(field, given, "expected a finite number")
    if hasattr(given, "get_secret_value") and encoded and encoded == str(given):
        expected = "a row would have asterisks for it; expected the name of a secret, which the handler asks for"
        raise InvalidInput(field, given, expected)
    if isinstance(encoded, dict) and isinstance(given, Mapping):
        for (name, part), value in zip(encoded.items(), given.values(), strict=False):
            _check_and_sort(value, part, f"{field}.{name}")
    elif isinstance(encoded, list) and isinstance(given, Iterable):
        for number, (value, part) in enumerate(zip(given, encoded, strict=False)):
            _check_and_sort(value, part, f"{field}[{number}]")
        if isinstance(given, Set):
            encoded.sort(key=_by_length_and_text)


def _by_length_and_text(part: object) -> tuple[int, str]:
    """For an order of any JSON values; that of whole numbers is theirs."""
    text = json.dumps(part, sort_keys=True)
    return len(text), text


def _name_of(kind: object) -> str:
    return str(kind) if get_origin(kind) is not None else getattr(kind, "__name__", str(kind))


def _context(action: str, task: Task, context: ActionContext) -> HandlerContext:
    try:
        attributes = plain(task.attributes) if task.attributes else {}
    except ValueError as error:
        raise PermanentError(f"the row's own attributes: {error}") from None
    return HandlerContext(
        action=action,
        task_id=task.task_id,
        attempt=context.attempt,
        run=context.run,
        turn=context.turn,
        due_at=context.due_at,
        idempotency_key=context.idempotency_key,
        deadline=context.deadline,
        schedule_id=context.schedule_id,
        subject=task.subject,
        limit_key=task.limit_key,
        traceparent=task.traceparent,
        attributes=attributes,  # type: ignore[arg-type]
        follow_ups=context.follow_ups,
        completion_token=completion_token(task.lease, task.task_id),
    )


def awaited(result: Any) -> object:
    """A result; of an awaitable, what it comes to in the loop of all async handlers."""
    return result_of(result) if inspect.isawaitable(result) else result


def _unfit(name: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"handler {name}", problem)
