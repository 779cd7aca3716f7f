"""The command line: all commands, and their errors as a line on stderr and an exit code.

Commands of other packages are entry points of the group ``dynatick.cli``, each a typer app. Such a plug-in is loaded
when it is named. One that cannot be imported fails when it is called; the other commands work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dynatick.cli import (
    action,
    batch,
    bucket,
    change,
    dead_letter,
    doctor,
    expr,
    failure,
    installation,
    schedule,
    task,
    tick,
)
from dynatick.cli.exit_code import CommandFailed, ExitCode, code_of, error_text
from dynatick.cli.output import say
from dynatick.domain.terminal_text import one_line
from dynatick.errors import DynatickError

GROUP = "dynatick.cli"
_MAX_SENTENCE = 1000  # characters


class Group(TyperGroup):
    """Lists its commands with the whole first sentence of each, also where it takes several lines."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_MAX_SENTENCE)) for name, one in found if one and not one.hidden]
            )


class Nouns(Group):
    """Dynatick's own commands, and those of plug-ins."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *sorted(name for name in _plugins() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        plugin = _plugins().get(cmd_name)
        return None if plugin is None else _load(plugin)


def _plugins() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=GROUP)}


def _load(plugin: EntryPoint) -> Any:
    try:
        command = typer.main.get_command(plugin.load())
    except ImportError as error:
        return _missing(plugin, str(error))
    command.name = plugin.name
    return command


def _missing(plugin: EntryPoint, reason: str) -> Any:
    """A command that reports that the plug-in cannot be imported."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command(
        name=plugin.name,
        help=f"Needs more packages ({plugin.module} cannot be imported).",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def command() -> None:
        how = "pip install 'dynatick[cli]', or in a checkout make setup"
        message = f"{plugin.name} needs more packages: {how} ({reason})"
        raise CommandFailed(ExitCode.UNEXPECTED, message)

    return typer.main.get_command(app)


# What typer raises for a wrong command line. Its base classes have no public name of their own.
_ClickException: Any = typer.BadParameter.__mro__[2]

# Plain help: it is as readable, and does not cost the import of rich.
app = typer.Typer(
    cls=Nouns,
    name="dynatick",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for group in (task, batch, bucket, schedule, action, failure, change, tick, dead_letter, expr):
    app.add_typer(group.app, cls=Group)
app.command("settings")(installation.settings)
app.command("status")(installation.status)
app.command("complete")(task.complete)
app.command("fail")(task.fail)
app.command("heartbeat")(task.heartbeat)
app.command("pause")(installation.pause)
app.command("resume")(installation.resume)
app.command("doctor")(doctor.doctor)
app.command("ui")(installation.ui)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dynatick {metadata.version('dynatick')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tasks to run later, on AWS: insert them, change them, list them.

    Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 unexpected, 2 usage, 3 invalid input,
    4 not found, 5 conflict, 6 table unreachable, 7 the doctor has findings, 8 what was waited for has failed,
    9 it has not ended in time, 130 interrupted, 141 output closed.
    """


@cache
def _commands() -> Any:
    """All commands; making them takes longer than most of them do."""
    return typer.main.get_command(app)


def _closed() -> ExitCode:
    """The reader closed the output. What is still buffered must not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return ExitCode.CLOSED


def invoke(arguments: Sequence[str]) -> int:
    """Runs one command line. Never raises; returns the exit code."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a text that it can't encode would fail what was done
    try:
        answer = _commands().main(args=list(arguments), prog_name="dynatick", standalone_mode=False)
        sys.stdout.flush()
        code = answer if isinstance(answer, int) else ExitCode.OK
        if code == ExitCode.INTERRUPTED:  # what typer makes of Ctrl-C
            say("error: interrupted")
        return code
    except _ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            say(error.format_message())
        else:
            path = error.ctx.command_path if getattr(error, "ctx", None) is not None else "dynatick"
            say(f"error: {one_line(error.format_message())} (see {path} --help)")
        return ExitCode.USAGE
    except CommandFailed as error:
        say(f"error: {one_line(str(error))}")
        return error.code
    except DynatickError as error:
        say(f"error: {one_line(error_text(error))}")
        return code_of(error)
    except BrokenPipeError:
        return _closed()
    except SystemExit as ended:  # typer's own, after completion and where it meets a broken pipe
        if isinstance(ended.__context__, BrokenPipeError):
            return _closed()
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    except (typer.Abort, KeyboardInterrupt):
        say("error: interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:
        say(f"error: unexpected {type(error).__name__}: {one_line(str(error))}")
        return ExitCode.UNEXPECTED
