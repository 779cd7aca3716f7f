"""A program: builds the actions of a module of handlers as the processor does, with the settings in the environment,
and prints the handlers and the schedules that they declare, or what is wrong, as JSON.

It runs in a process of its own, since what was imported once stays. It imports nothing of ``dynatick_stack``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dynatick.actions import build_actions
from dynatick.actions.handlers import Handler, load_handlers
from dynatick.engine.invocation import max_timeout_seconds
from dynatick.errors import ConfigurationError, InvalidInput
from dynatick.json_reader import dumps
from dynatick.settings import Settings
from dynatick.task_function import declared_schedules


def examine(module: str, folder: Path, scheduler: Path, environment: Sequence[str]) -> dict[str, object]:
    """``actions``: the names of the handlers, each with the JSON Schema of its payload, if it has one; ``known``: of
    all actions that the settings allow; ``schedules``: those that handlers declare. Else ``problem``, and ``place`` if
    a file of the folder is to blame. ``scheduler``: the folder of the function that has the assignment policies;
    ``environment``: the variables that only the processor has."""
    try:
        settings = Settings.from_env({"DYNATICK_TABLE": "not deployed", **os.environ})
        whole = settings.processor_timeout
        registry = build_actions(
            handlers_module=module,
            clock=lambda: datetime.now(UTC),
            settings=settings.action_settings,
            max_timeout_seconds=None if whole is None else max_timeout_seconds(whole),
        )
        actions = {handler.name: _schema(handler) for handler in load_handlers(module)}
        schedules = declared_schedules(module)
    except InvalidInput as error:
        return {"problem": str(error), "place": None}
    except ConfigurationError as error:
        cause = error.__cause__ or error
        if isinstance(cause, ConfigurationError):
            return {"problem": str(cause), "place": _place(cause, folder)}
        return {"problem": f"{type(cause).__name__}: {_text(cause)}", "place": _place(cause, folder)}
    try:
        _check_policy(settings.assignment_policy, folder, scheduler, environment)
    except ConfigurationError as error:
        return {"problem": str(error), "place": None}
    return {"actions": actions, "known": registry.names(), "schedules": schedules}


def _check_policy(policy: str | None, folder: Path, scheduler: Path, environment: Sequence[str]) -> None:
    """Loads the policy as the scheduler does: from its folder first, and without the environment of the handlers, so
    the project's modules are imported anew."""
    if policy is None:
        return
    from dynatick.wiring import load_policy

    sys.path.insert(0, str(scheduler))
    for name, module in list(sys.modules.items()):
        if (file := getattr(module, "__file__", None)) is not None and Path(file).is_relative_to(folder):
            del sys.modules[name]
    for name in environment:
        os.environ.pop(name, None)
    try:
        load_policy(policy)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            "AssignmentPolicy",
            f"cannot load {policy!r} ({type(error).__name__}: {error}); the scheduler, which calls it, has no "
            "variables and secrets of [handlers]",
        ) from error


def _schema(handler: Handler) -> str | None:
    try:
        return handler.payload_schema()
    except ConfigurationError:  # said when its tasks run
        return None


def _text(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _place(error: BaseException, folder: Path) -> str | None:
    """The innermost line of the project's own code."""
    if isinstance(error, SyntaxError) and error.filename:
        return _shown(Path(error.filename), error.lineno, folder)
    frames = traceback.extract_tb(error.__traceback__)
    places = (_shown(Path(frame.filename), frame.lineno, folder) for frame in reversed(frames))
    return next((place for place in places if place), None)


def _shown(path: Path, line: int | None, folder: Path) -> str | None:
    return f"{path.relative_to(folder)}:{line}" if path.is_relative_to(folder) else None


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # what the module prints is none of the answer
        found = examine(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    print(dumps(found))
