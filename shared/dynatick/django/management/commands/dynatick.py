"""``manage.py dynatick ui``: the commands of ``dynatick``, with what the settings put into the environment."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = "Runs a command of dynatick, such as `dynatick ui` for the dashboard, or `dynatick task list --last 1h`."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Leaves what follows to ``dynatick``: its options are not Django's."""
        sys.exit(_invoke(argv[2:]))

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """For ``call_command``. Raises SystemExit unless it ends with 0."""
        if code := _invoke(arguments):
            sys.exit(code)


def _invoke(arguments: list[str]) -> int:
    """The exit code. Raises CommandError if the packages of the command line are missing."""
    try:
        from dynatick.cli.app import invoke
    except ModuleNotFoundError as error:
        raise CommandError(f"dynatick needs more packages: pip install 'dynatick[cli]' ({error})") from error
    return invoke(arguments)
