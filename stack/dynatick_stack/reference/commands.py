"""docs/reference/cli.md: every command with its arguments and options, as `--help` says them."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from typing import Any

import typer

from dynatick.cli.app import app
from dynatick.cli.exit_code import ExitCode
from dynatick.cli.session import Session
from dynatick_stack.reference.markdown import one_line, page, table

_INTRO = """\
`pip install 'dynatick[cli]'` gives `dynatick`; in a checkout, `make up` sets it up. Nouns, then verbs. Each command
explains itself with `--help`. `dynatick --install-completion` makes the shell complete nouns, verbs and options."""

_OUTPUT = """\
Data goes to stdout, messages and progress to stderr. `--output table` (the default) is for people, with colours on a
terminal only, and without them where `NO_COLOR` is set. `--output json` is one document, `--output jsonl` one a line,
both under the table's names (`taskId`, `dueAt` …). Where there is more than `--limit`, the last message, or
`nextPageToken`, says how to go on. On a narrow terminal a table leaves out what matters least. `task export` writes a
file's format instead: `--format`.

A time is a bucket (`2026-12-31#12:00`), an instant with its offset (`2026-12-31T13:07:00+01:00`), epoch seconds, `now`,
or counted from now with a sign: `+10m`, `-1h30m`. A duration is numbers with their units, the larger first: `90s`,
`1h30m`, `3d`. JSON may come from a file: `--payload @payload.json`.

Where several ids are given, or `-` for those on stdin, each has its line, and one that fails does not stop the others;
the exit code is then the highest of theirs. What changes all tasks of a bucket or range asks first where stdin and
stderr are a terminal, unless `--yes` is given.

For `dynatick expr`, `--from` is now if it is not given. An expression that does not run after it is refused, as invalid
input is.

Ctrl-C and a reader that closes the output (`| head`) end a command quietly. An import may be repeated: what is in stays
as it is and counts as `exists` ([import](../how-to/import.md))."""

_LOCAL_EXITS = """\
The codes are those of `dynatick.cli.exit_code.ExitCode`, for `dynatick local` as well: 3 for a parameter that does not
exist, 5 for a port that another program has, 6 where no local stack runs, 1 for a deployment that failed."""

_EXITS = {
    ExitCode.OK: "Done",
    ExitCode.UNEXPECTED: "Unexpected: none of the others",
    ExitCode.USAGE: "Usage: the command line is wrong, or names no table",
    ExitCode.INVALID: "Invalid input: a value that no interface accepts",
    ExitCode.NOT_FOUND: "Not found: no such task, function or file",
    ExitCode.CONFLICT: "Conflict: the task exists already, or its state does not allow what was asked",
    ExitCode.UNREACHABLE: "Unreachable: the table, or the local stack, does not answer",
    ExitCode.FOUND: "Found: the doctor found something wrong, and it is not repaired",
    ExitCode.NOT_COMPLETED: "Not completed: a task that was waited for has failed, or was cancelled",
    ExitCode.TIMED_OUT: "Timed out: what was waited for has not ended in time",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C; what was done stays",
    ExitCode.CLOSED: "Closed: the output's reader has ended",
}


def page_of(root: Any) -> str:
    """The page of a command line."""
    commands = list(_commands(root, "dynatick"))
    return page(
        "The command line",
        _INTRO,
        table(
            ["Command", "What it does"],
            [(f"[`{_usage(path, one)}`](#{_anchor(path)})", _summary(one)) for path, one in commands],
        ),
        "## Where the table is",
        "Every command that talks to a table takes these options.",
        table(["Option", "What it says"], [_option(one) for one in _shared(commands)]),
        "## What comes out",
        _OUTPUT,
        "## Exit codes",
        table(["Code", "Meaning"], [(str(code.value), meaning) for code, meaning in _EXITS.items()]),
        _LOCAL_EXITS,
        *(_section(path, one) for path, one in commands),
    )


def page_text() -> str:
    """As it is now."""
    return page_of(typer.main.get_command(app))


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


def _usage(path: str, command: Any) -> str:
    return " ".join([path, *(_metavar(one) for one in command.params if one.param_type_name == "argument")])


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _summary(command: Any) -> str:
    return one_line(inspect.cleandoc(command.help or "").split("\n\n")[0])


def _section(path: str, command: Any) -> str:
    shared = {one.name for one in fields(Session)} if _takes_session(command) else set()
    own = [one for one in command.params if one.name not in {*shared, "help"}]
    parts = [f"## {path}", f"`{_usage(path, command)}`", inspect.cleandoc(command.help or "")]
    if own:
        parts.append(table(["", ""], [_option(one) for one in own]))
    return "\n\n".join(parts)


def _takes_session(command: Any) -> bool:
    return {one.name for one in fields(Session)} <= {one.name for one in command.params}


def _shared(commands: list[tuple[str, Any]]) -> list[Any]:
    names = [one.name for one in fields(Session)]
    command = next(one for _, one in commands if _takes_session(one))
    return [one for one in command.params if one.name in names]


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
