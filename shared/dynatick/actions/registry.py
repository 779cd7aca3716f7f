"""Actions by name: the built-in ones and the user's handlers, in one namespace."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from dynatick.actions.plain_value import kept_result
from dynatick.domain.completion import Commit, CompleteLater
from dynatick.domain.task import MAX_ACTION_CHARACTERS, RESERVED_ACTIONS, Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import ConfigurationError, PermanentError, RetryableError, shown
from dynatick.tracing import attempt_span

Timeout = Callable[[Task], int | None]
"""Returns the longest that an attempt of the task takes, in seconds; None: not declared."""

PayloadSchema = Callable[[], str | None]
"""Returns the JSON Schema of an action's payload as text; None: it has none."""

MAX_SCHEMA_BYTES = 16 * 1024
MAX_SCHEMAS_BYTES = 128 * 1024
"""The limit for one schema, and for all together: every tick reads the row that holds them."""

_logger = logging.getLogger("dynatick.actions")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*", re.ASCII)
_LISTED = 20


class Action(Protocol):
    """Executes tasks of one action."""

    def run(self, task: Task, context: ActionContext) -> object:
        """Executes the task and returns its result.

        Raises PermanentError or RetryableError; any other exception counts as retryable.
        """


def check_name(name: object) -> str:
    """The name, if an action may have it. Raises ConfigurationError."""
    expected = "expected letters, digits and . _ : / - and at the front a letter or a digit"
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError("action", f"{shown(name)} is not a name; {expected}")
    if len(name) > MAX_ACTION_CHARACTERS:
        problem = f"{shown(name)} is too long; expected at most {MAX_ACTION_CHARACTERS} characters"
        raise ConfigurationError("action", problem)
    if name.startswith(RESERVED_ACTIONS):
        problem = f"{shown(name)} is reserved; expected a name that does not begin with {RESERVED_ACTIONS}"
        raise ConfigurationError("action", problem)
    return name


class LazyAction:
    """An action that is created for its first task, because its imports are slow and would delay a cold start."""

    def __init__(self, make: Callable[[], Action]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: Action | None = None

    def run(self, task: Task, context: ActionContext) -> object:
        """Runs the action."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return self._made.run(task, context)


class Registry:
    """Runs tasks by their action's name (implements the engine's ``Actions``)."""

    def __init__(self, actions: Mapping[str, Action] | Iterable[tuple[str, Action]] = ()) -> None:
        self._actions: dict[str, Action] = {}
        self._timeouts: dict[str, Timeout] = {}
        self._schemas: dict[str, PayloadSchema] = {}
        self._schema_texts: dict[str, str] | None = None
        for name, action in actions.items() if isinstance(actions, Mapping) else actions:
            self.add(name, action)

    def add(
        self, name: str, action: Action, timeout: Timeout | None = None, schema: PayloadSchema | None = None
    ) -> None:
        """Adds an action. Raises ConfigurationError for an invalid name and for one that is in use."""
        if check_name(name) in self._actions:
            problem = f"{shown(name)} is there twice; give one of them another name"
            raise ConfigurationError("action", problem)
        self._actions[name] = action
        if timeout is not None:
            self._timeouts[name] = timeout
        if schema is not None:
            self._schemas[name] = schema

    def restrict_to(self, names: Iterable[str]) -> None:
        """Removes all other actions. Raises ConfigurationError for a name that is not registered."""
        wanted = set(names)
        if missing := sorted(wanted - set(self._actions)):
            problem = f"there is no action {shown(missing[0])} here; known are {self._listed()}"
            raise ConfigurationError("AllowedActions", problem)
        self._actions = {name: action for name, action in self._actions.items() if name in wanted}

    def names(self) -> Sequence[str]:
        """The names of the actions, sorted."""
        return sorted(self._actions)

    def payload_schemas(self) -> Mapping[str, str]:
        """The JSON Schemas of the payloads, as text, by action. Built once; too large ones are logged and left out."""
        if self._schema_texts is None:
            self._schema_texts = {}
            left = MAX_SCHEMAS_BYTES
            for name in sorted(self._schemas.keys() & self._actions.keys()):
                problem = None
                try:
                    schema = self._schemas[name]()
                except ConfigurationError as error:
                    schema, problem = None, str(error)
                if schema is not None and len(schema.encode()) > min(left, MAX_SCHEMA_BYTES):
                    problem = (
                        f"its payload's schema has {len(schema.encode())} bytes; there is room for {MAX_SCHEMA_BYTES}, "
                        f"and for {MAX_SCHEMAS_BYTES} of all handlers together"
                    )
                if problem is not None:
                    _logger.warning(
                        "payloads of a handler are checked only when its tasks run",
                        extra={"action": "payload_schema_left_out", "handler": name, "problem": problem},
                    )
                elif schema is not None:
                    self._schema_texts[name] = schema
                    left -= len(schema.encode())
        return self._schema_texts

    def timeout_seconds(self, task: Task) -> int | None:
        """The task's own ``timeoutSeconds``, else its action's timeout; None: neither is declared."""
        if task.timeout_seconds is not None:
            return task.timeout_seconds
        timeout = self._timeouts.get(task.action)
        return None if timeout is None else timeout(task)

    def run(self, task: Task, context: ActionContext) -> object:
        """Runs the task's action and returns its result, limited in size (see ``kept_result``).

        Raises what the action raises, and PermanentError, with the known names, for an unknown action.
        """
        action = self._actions.get(task.action)
        if action is None:
            raise PermanentError(f"there is no action {shown(task.action)}; known are {self._listed()}")
        try:
            with attempt_span(task):
                result = action.run(task, context)
        except BaseException as error:
            if isinstance(error, (Exception, KeyboardInterrupt)):
                raise
            # sys.exit() or a cancelled coroutine fails the task and must not end the processor.
            raise RetryableError(f"the action ended with {type(error).__name__}") from error
        if isinstance(result, Commit):
            return replace(result, result=kept_result(result.result))
        return result if isinstance(result, CompleteLater) else kept_result(result)

    def _listed(self) -> str:
        names = self.names()
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return (", ".join(names[:_LISTED]) or "none") + more
