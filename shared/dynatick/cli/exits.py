"""How commands end: stable exit codes, and one line on stderr for each error."""

from __future__ import annotations

from enum import IntEnum

from dynatick.errors import (
    ConfigurationError,
    DynatickError,
    InvalidInput,
    ItemTooLarge,
    StoreError,
    TaskChanged,
    TaskExists,
    TaskNotFound,
    TransitionRefused,
)


class ExitCode(IntEnum):
    """What programs may rely on."""

    OK = 0
    UNEXPECTED = 1  # none of the others; a fault of ours, most likely
    USAGE = 2  # the command line itself is wrong, or does not say which table
    INVALID = 3  # a value that no door accepts
    NOT_FOUND = 4  # no such task, function or file
    CONFLICT = 5  # the task exists already, or its state does not allow what was asked
    UNREACHABLE = 6  # the table, or the local stack, does not answer or refuses
    FOUND = 7  # the doctor found something wrong, and it is not mended
    INTERRUPTED = 130  # by Ctrl-C; what was done stays
    CLOSED = 141  # whoever read our output closed it, as `| head` does


class CommandFailed(Exception):
    """A command that cannot do its work, with its code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: DynatickError) -> ExitCode:
    """The exit code of an error."""
    match error:
        case ConfigurationError():
            return ExitCode.USAGE
        case InvalidInput() | ItemTooLarge():
            return ExitCode.INVALID
        case TaskNotFound():
            return ExitCode.NOT_FOUND
        case TaskExists() | TransitionRefused() | TaskChanged():
            return ExitCode.CONFLICT
        case StoreError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.UNEXPECTED


_OPTIONS = {"start": "--from", "end": "--to"}
_HINTS = {
    "ResourceNotFoundException": "there is no such table there; see --table, --region and --profile",
    "NoCredentialsError": "name a profile with --profile, or set AWS_PROFILE",
    "NoRegionError": "name a region with --region, or set AWS_REGION",
    "UnrecognizedClientException": "the credentials are not accepted; see --profile",
    "ExpiredTokenException": "the credentials have expired; log in again",
    "AccessDeniedException": "the credentials do not allow it; see --profile",
}


def told(error: DynatickError) -> str:
    """What an error says, in the words of the command line, and with what can be done about it."""
    if isinstance(error, InvalidInput) and error.field in _OPTIONS:
        return str(InvalidInput(_OPTIONS[error.field], error.value, error.expected))
    if isinstance(error, StoreError) and error.__cause__ is not None:
        # Its adapter knows the SDK, which is imported already where it has failed.
        from dynatick.store.failures import failure_code

        hint = _HINTS.get(failure_code(error.__cause__))
        if hint is not None:
            return f"{error} ({hint})"
    return str(error)
