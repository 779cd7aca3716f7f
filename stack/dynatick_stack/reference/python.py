"""The Python API, from its own signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from dynatick import errors
from dynatick_stack.markdown import one_line, table

_WIDTH = 100
_SECTIONS = {
    "client": (
        "client.tasks.TaskClient", "client.schedules.Schedules", "client.batches.Batches",
        "client.operations.Operations",
        "client.dead_letters.DeadLetters", "client.async_tasks.AsyncTaskClient",
    ),
    "values": (
        "client.new_task.NewTask", "client.views.TaskView", "client.views.TaskEntry", "client.views.HistoryPage",
        "client.views.BucketCounts", "client.insertion.InsertCounts", "client.insertion.Inserted",
        "client.insertion.Exists", "client.insertion.Refused", "client.insertion.InsertUnknown",
        "client.bulk_change.Changed", "client.bulk_change.WouldChange", "client.bulk_change.Skipped",
        "client.bulk_change.ChangeUnknown", "client.schedule_views.ScheduleView", "client.schedule_views.SchedulePage",
        "client.batches.BatchInserted", "client.batches.BatchView", "client.batches.BatchPage",
        "client.batches.PackLoaded", "client.batches.MemberPage", "client.batches.BatchCancelled",
        "client.dead_letters.DeadLetterView", "client.explanation.Explanation", "client.installation.Health",
        "client.installation.InstallationStatus",
    ),
    "handlers": (
        "task_function.task", "task_function.TaskFunction", "task_function.use_client", "actions.handlers.around",
        "actions.handlers.HandlerContext", "actions.handler_secrets.secret", "errors.PermanentError",
        "errors.RetryableError", "errors.Reschedule",
    ),
    "tests": (
        "testing.virtual_installation.VirtualInstallation", "testing.executions.Execution",
        "testing.executions.Waiting",
    ),
    "times": ("domain.buckets.Bucket", "domain.buckets.Grid", "domain.retry.RetryPolicy"),
}  # fmt: skip


def parts() -> dict[str, str]:
    """A part for each section, and the tree of errors."""
    found = {name: "\n\n".join(_lines_of(paths)) for name, paths in _SECTIONS.items()}
    tree = inspect.cleandoc(errors.__doc__ or "").partition("::\n")[2].partition("\n\nRateLimited")[0]
    return {**found, "errors": f"```text\n{inspect.cleandoc(tree)}\n```"}


def _lines_of(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        module, _, name = path.rpartition(".")
        value = getattr(import_module(f"dynatick.{module}"), name)
        yield f"### {name}"
        if not inspect.isclass(value):
            yield _code(name, value)
        yield _doc(value)
        if inspect.isclass(value):
            yield from _members(value)


def _members(kind: type) -> Iterator[str]:
    if dataclasses.is_dataclass(kind) and (rows := list(_fields(kind))):
        yield table(["Field", "Type", "What it is"], rows)
    for name, value in _public(kind):
        if isinstance(value, property):
            meaning = _doc(value) or _meaning(str(value.fget.__annotations__.get("return", "")))[1]
            yield f"`{name}`: {meaning}" if meaning else f"`{name}`"
        else:
            yield f"#### {kind.__name__}.{name}"
            yield _code(name, getattr(kind, name))
            yield _doc(value)


def _public(kind: type) -> Iterator[tuple[str, Any]]:
    """Its own and inherited methods and properties, in the order of their source, the base classes' after its own."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("dynatick."):
            continue
        for name, value in vars(base).items():
            is_shown = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if is_shown and not name.startswith("_") and name not in seen and name not in ("to_row", "from_row"):
                seen.add(name)
                yield name, value


def _fields(kind: Any) -> Iterator[tuple[str, str, str]]:
    for field in dataclasses.fields(kind):
        if not field.name.startswith("_"):
            hint, meaning = _meaning(str(field.type))
            yield f"`{field.name}`", f"`{hint}`", meaning or str(field.metadata.get("meaning", ""))


def _meaning(hint: str) -> tuple[str, str]:
    """The type and the text of an ``Annotated``."""
    found = re.fullmatch(r"Annotated\[(.*)\]", hint, re.DOTALL)
    if found is None:
        return hint, ""
    parts = re.split(r", (?=Json\(|\"|')", found[1].strip(), maxsplit=1)
    texts = re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.sub(r"Json\([^)]*\)", "", found[1]))
    return parts[0].strip().rstrip(","), " ".join(one_line("".join(text)) for text in texts)


def _code(name: str, value: Callable[..., object]) -> str:
    signature = inspect.signature(value)
    given = [_shown(one) for one in signature.parameters.values() if one.name != "self"]
    text = f"{name}{signature.replace(parameters=given)}".replace("'", "").replace("Ellipsis", "...")
    if len(text) > _WIDTH:
        head, _, rest = text.partition("(")
        inner, _, tail = rest.rpartition(")")
        text = f"{head}(\n" + "".join(f"    {one},\n" for one in _split(inner)) + f"){tail}"
    return f"```text\n{text}\n```"


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    """A default that is a function is shown as an ellipsis: its repr has an address."""
    return parameter.replace(default=...) if inspect.isroutine(parameter.default) else parameter


def _split(parameters: str) -> list[str]:
    """The parameters of a signature; commas within brackets are a type's."""
    found, depth = [""], 0
    for character in parameters:
        depth += (character in "[(") - (character in "])")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [one.strip() for one in found]


def _doc(value: object) -> str:
    return (inspect.getdoc(value) or "").replace("``", "`")
