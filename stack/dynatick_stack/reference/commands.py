"""Every command of the command line, with its arguments and options, as `--help` says them."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from typing import Any

import typer

from dynatick.cli.app import app
from dynatick.cli.session import Session
from dynatick_stack.markdown import one_line, table

_SHARED = {one.name for one in fields(Session)}


def parts() -> dict[str, str]:
    """The list of commands, the options that those share that talk to a table, and a section for each command."""
    commands = list(_commands(typer.main.get_command(app), "dynatick"))
    shared = next(_shared(one) for _, one in commands if _shared(one))
    return {
        "commands": table(
            ["Command", "What it does"],
            [(f"[`{_usage(path, one)}`](#{path.replace(' ', '-')})", _summary(one)) for path, one in commands],
        ),
        "options": table(["Option", "What it says"], [_option(one) for one in shared]),
        "sections": "\n\n".join(_section(path, one) for path, one in commands),
    }


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The commands below a group, in the order of its help."""
    context = group.make_context(path, [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _shared(command: Any) -> list[Any]:
    """Its options that say where the table is: all of them, or none."""
    found = [one for one in command.params if one.name in _SHARED]
    return found if len(found) == len(_SHARED) else []


def _usage(path: str, command: Any) -> str:
    return " ".join([path, *(_metavar(one) for one in command.params if one.param_type_name == "argument")])


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _summary(command: Any) -> str:
    return one_line(inspect.cleandoc(command.help or "").split("\n\n")[0])


def _section(path: str, command: Any) -> str:
    shared = _shared(command)
    own = [one for one in command.params if one not in shared and one.name != "help"]
    about = [f"## {path}", f"`{_usage(path, command)}`", inspect.cleandoc(command.help or "")]
    return "\n\n".join([*about, *([table(["", ""], [_option(one) for one in own])] if own else [])])


def _option(one: Any) -> tuple[str, str]:
    if one.param_type_name == "argument":
        return f"`{_metavar(one)}`", one_line(one.help or "")
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    value = "" if one.is_flag else f" `{one.metavar or _kind(one.type_descriptor.annotation)}`"
    text = one_line(one.help or "")
    if one.default in (None, "", []) or one.is_flag or callable(one.default) or "Default" in text:
        return names + value, text
    default = one.show_default if isinstance(one.show_default, str) else getattr(one.default, "value", one.default)
    return names + value, f"{text} Default: `{default}`."


def _kind(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(choice.value) for choice in annotation)
    return "NUMBER" if annotation in (int, float) else "TEXT"
