"""The exit codes of commands, which are stable, and the texts of errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from urllib.parse import urlsplit

from dynatick.errors import (
    CompletionRefused,
    ConfigurationError,
    DynatickError,
    InvalidInput,
    ItemTooLarge,
    StoreError,
    TaskChanged,
    TaskExists,
    TaskNotFound,
    TransitionRefused,
    WaitTimedOut,
)


class ExitCode(IntEnum):
    """Exit codes that programs may rely on."""

    OK = 0
    UNEXPECTED = 1  # none of the others; most likely a fault of Dynatick
    USAGE = 2  # the command line is invalid, or names no table
    INVALID = 3  # a value that no interface accepts
    NOT_FOUND = 4  # no such task, function or file
    CONFLICT = 5  # the task exists already, or its state does not allow the request
    UNREACHABLE = 6  # the table, or the local stack, does not answer, or refuses the request
    FOUND = 7  # the doctor has findings that are not repaired
    NOT_COMPLETED = 8  # what was waited for has failed or was cancelled
    TIMED_OUT = 9  # what was waited for has not ended in time
    INTERRUPTED = 130  # by Ctrl-C; changes that were made stay
    CLOSED = 141  # the reader of the output closed it, as `| head` does


class CommandFailed(Exception):
    """The end of a command that failed, with its exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def opening(name: str, verb: str = "read") -> Iterator[None]:
    """Raises CommandFailed where a file cannot be read, or written."""
    try:
        yield
    except OSError as error:
        raise CommandFailed(ExitCode.NOT_FOUND, f"cannot {verb} {name}: {error.strerror}") from error


def code_of(error: DynatickError) -> ExitCode:
    """The exit code of an error."""
    match error:
        case ConfigurationError():
            return ExitCode.USAGE
        case InvalidInput() | ItemTooLarge():
            return ExitCode.INVALID
        case TaskNotFound():
            return ExitCode.NOT_FOUND
        case TaskExists() | TransitionRefused() | TaskChanged() | CompletionRefused():
            return ExitCode.CONFLICT
        case WaitTimedOut():
            return ExitCode.TIMED_OUT
        case StoreError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.UNEXPECTED


_OPTIONS = {"start": "--from", "end": "--to"}
_LOG_IN = "the credentials have expired; log in again"
_HINTS = {
    "ResourceNotFoundException": "there is no such table there; see --table, --stack, --region and --profile",
    "AWS.SimpleQueueService.NonExistentQueue": "there is no such queue there; see --queue-url, --stack and --region",
    "NoCredentialsError": "name a profile with --profile, or set AWS_PROFILE",
    "NoRegionError": "name a region with --region, or set AWS_REGION",
    "UnrecognizedClientException": "the credentials are not accepted; see --profile",
    "InvalidClientTokenId": "the credentials are not accepted; see --profile",
    "PartialCredentialsError": "the credentials are not complete; see --profile",
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRetrievalError"), _LOG_IN),
    **dict.fromkeys(("SSOTokenLoadError", "UnauthorizedSSOTokenError"), f"{_LOG_IN}, as with aws sso login"),
    "AccessDeniedException": "the credentials do not allow it; see --profile",
}


_NO_ANSWER = ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError", "ReadTimeoutError")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def hint_of(error: BaseException) -> str | None:
    """A hint on an error of the SDK, or of pynamodb."""
    # Imported here, since the store's adapter imports the SDK.
    from dynatick.store.failures import failure_code

    code = failure_code(error)
    if code in _NO_ANSWER:
        cause = getattr(error, "cause", None) or error
        endpoint = str(getattr(cause, "kwargs", {}).get("endpoint_url") or "")
        parts = urlsplit(endpoint)
        where = f"nothing answers at {parts.scheme}://{parts.netloc}" if parts.netloc else "nothing answers"
        if parts.hostname in _THIS_MACHINE:
            how = "start it with dynatick dev in your project, or make up in a clone"
            return f"{where}; {how}; or see --endpoint-url and AWS_ENDPOINT_URL"
        return f"{where}; see --endpoint-url, --region and the network"
    return _HINTS.get(code)


def error_text(error: DynatickError) -> str:
    """The message of an error, with the command line's option names and a hint."""
    if isinstance(error, InvalidInput) and error.field in _OPTIONS:
        return str(InvalidInput(_OPTIONS[error.field], error.value, error.expected))
    if isinstance(error, StoreError) and error.__cause__ is not None:
        hint = hint_of(error.__cause__)
        if hint is not None:
            return f"{error} ({hint})"
    return str(error)
