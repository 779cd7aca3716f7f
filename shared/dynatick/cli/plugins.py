"""Commands of other packages: entry points of the group ``dynatick.cli``, each a typer app.

A plug-in is loaded when it is named. One that cannot be imported fails when it is called; the other commands work.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from dynatick.cli.exit_code import CommandFailed, ExitCode

GROUP = "dynatick.cli"


class Nouns(TyperGroup):
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
