"""The actions of a virtual installation: the user's handlers, and built-in ones that call nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

from dynatick.actions.handlers import Handler, awaited, load_handlers
from dynatick.actions.payload import BUILT_IN, check_payload
from dynatick.actions.plain_value import plain
from dynatick.actions.registry import Registry
from dynatick.domain.task import Task
from dynatick.engine.invocation import max_timeout_seconds
from dynatick.engine.ports import ActionContext
from dynatick.errors import InvalidInput, PermanentError, Reschedule
from dynatick.testing.executions import Journal

INVOCATION = timedelta(minutes=15)
"""How long one may last."""


class Actions:
    """The engine's Actions: handlers, and built-in actions that do nothing; each attempt is noted."""

    def __init__(self, handlers: str | ModuleType | None, journal: Journal) -> None:
        self.failures: dict[str, deque[Exception]] = {}
        self.answers: dict[str, Callable[[Any], object]] = {}
        self._journal = journal
        self._handlers: dict[str, Handler] = {}
        self._registry = Registry()
        for name in BUILT_IN:
            self._registry.add(name, _Recorded(self))
        for found in load_handlers(handlers, max_timeout_seconds(INVOCATION)) if handlers is not None else ():
            self._registry.add(found.name, _Recorded(self), found.reserved_seconds, found.payload_schema)
            self._handlers[found.name] = found
        self.names = self._registry.names
        self.payload_schemas = self._registry.payload_schemas
        self.timeout_seconds = self._registry.timeout_seconds

    def known(self, action: object) -> str:
        """The name of an action. Raises InvalidInput for one that is not here."""
        name = getattr(action, "action", action)
        if name not in self.names():
            raise InvalidInput("action", name, f"expected a task function, or one of {', '.join(self.names())}")
        return str(name)

    def run(self, task: Task, context: ActionContext) -> object:
        payload: object = plain(task.payload)
        result: object = None
        raised: BaseException | None = None
        try:
            payload = self._payload_of(task)
            result = self._registry.run(task, context)
            return result
        except BaseException as error:
            raised = error
            raise
        finally:
            self._journal.ended(task, payload, result, raised)

    def do(self, task: Task, context: ActionContext) -> object:
        """The work of a known action, or what the test wants in its place."""
        instead = self.answers.get(task.action)
        if failures := self.failures.get(task.action):
            instead = _raising(failures.popleft())
        if handler := self._handlers.get(task.action):
            return handler.run(task, context, instead)
        result = None if instead is None else awaited(instead(plain(task.payload)))
        if isinstance(result, Reschedule):
            raise result
        return result

    def _payload_of(self, task: Task) -> object:
        handler = self._handlers.get(task.action)
        if handler is not None:
            return handler.payload_of(task)
        try:
            check_payload(task.action, task.payload)
        except InvalidInput as error:
            raise PermanentError(str(error)) from None
        return plain(task.payload)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """An action of the registry, which bounds its result and turns strange exceptions into errors."""

    actions: Actions

    def run(self, task: Task, context: ActionContext) -> object:
        return self.actions.do(task, context)


def _raising(error: Exception) -> Callable[[Any], object]:
    def fail(payload: object) -> object:
        raise error

    return fail
