"""Why the table could not be read: what was refused, and the command that repairs it. Pure: knows errors of the SDK by
their form only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dynatick.domain.terminal_text import quoted
from dynatick.errors import StoreError

_EXPIRED = {
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "UnauthorizedSSOTokenError", "SSOTokenLoadError",
    "TokenRetrievalError", "SSOError", "CredentialRetrievalError", "LoginRefreshRequired", "LoginTokenLoadError",
}  # fmt: skip
_UNKNOWN = {
    "NoCredentialsError", "PartialCredentialsError", "UnrecognizedClientException", "InvalidClientTokenId",
    "InvalidSignatureException", "ProfileNotFound",
}  # fmt: skip
_DENIED = {"AccessDeniedException", "AccessDenied"}
_MISSING = {"ResourceNotFoundException"}
_THROTTLED = {
    "ThrottlingException", "ThrottlingError", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
}  # fmt: skip
_UNREACHABLE = {
    "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError",
    "ProxyConnectionError", "NoAnswer",
}  # fmt: skip
_REFUSED = re.compile(r"not authorized to perform: (\S+)(?: on resource: (\S+))?")
_WHO = re.compile(r"User: (\S+)")
_MAX_TEXT = 300
_KEYS = "AWS_ACCESS_KEY_ID"
_MAX_SOURCES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class SignIn:
    """How the credentials of a profile are renewed. ``command``: None if there is none that would be right."""

    command: str | None
    advice: str


_RENEW = SignIn(command=None, advice="Renew them, then start dynatick ui again.")
_GOES_ON = "the pages go on by themselves."


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """With what the pages read the table. None: the SDK's own configuration."""

    profile: str | None = None
    region: str | None = None
    table: str | None = None
    read_policy: str = "Read"
    sign_in: SignIn = _RENEW

    def command(self, words: str, *, with_region: bool = True, with_table: bool = False) -> str:
        """A command of AWS with the options that it needs, to paste into a shell."""
        given = [("--table-name", self.table if with_table else None), ("--profile", self.profile)]
        given.append(("--region", self.region if with_region else None))
        return " ".join([words, *(f"{name} {quoted(value)}" for name, value in given if value)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Why the table could not be read. ``kind``: expired, unknown, denied, missing, throttled, unreachable or other."""

    kind: str
    title: str
    refused: str  # what was asked for, and the answer
    advice: str
    command: str | None = None
    profile: str | None = None


def trouble_of(error: StoreError, access: Access) -> Trouble:
    """What an error of the table means."""
    code, message = _answer(error)
    trouble = partial(Trouble, refused=_short(str(error)), profile=access.profile or "default")
    if code in _EXPIRED:
        return trouble(
            kind="expired", title="The credentials have expired", command=access.sign_in.command,
            advice=access.sign_in.advice,
        )  # fmt: skip
    if code in _UNKNOWN:
        return trouble(
            kind="unknown", title="AWS does not know these credentials",
            command=access.command("aws configure", with_region=False),
            advice="Set up the profile or name another one with --profile, then start dynatick ui again.",
        )  # fmt: skip
    if code in _DENIED:
        what, who = _REFUSED.search(message), _WHO.search(message)
        asked = _short(str(error)) if what is None else f"{what[1]} on {what[2] or access.table or 'the table'}"
        return trouble(
            kind="denied", title="AWS has refused a read", refused=f"{asked}{f', for {who[1]}' if who else ''}",
            command=access.command("aws sts get-caller-identity"),
            advice=f"Attach the policy {access.read_policy} of docs/how-to/access.md to this identity, or use another.",
        )  # fmt: skip
    if code in _MISSING:
        return trouble(
            kind="missing", title=f"There is no table {access.table or 'of these pages'}",
            command=access.command("aws dynamodb list-tables"),
            advice="It was deleted, or it is in another account or region: see which tables are there.",
        )  # fmt: skip
    if code in _THROTTLED or "left unprocessed" in str(error):
        return trouble(
            kind="throttled", title="The table refuses reads, because there are too many",
            command=access.command("aws dynamodb describe-table", with_table=True),
            advice="The pages try again. If it lasts, see its OnDemandThroughput, and the quota of the account.",
        )  # fmt: skip
    if code in _UNREACHABLE:
        return trouble(
            kind="unreachable", title="The table does not answer",
            command=access.command("aws sts get-caller-identity"),
            advice="The pages try again. See that this machine reaches AWS, and that the region is the right one.",
        )  # fmt: skip
    return trouble(kind="other", title="The table could not be read", advice="The pages try again.")


def _answer(error: BaseException) -> tuple[str, str]:
    """The code and the message of the service's answer; of an error without one, the name of its type and its text."""
    last: BaseException = error
    for one in _causes(error):
        response = getattr(one, "response", None)
        found = response.get("Error") if isinstance(response, Mapping) else None
        if isinstance(found, Mapping) and found.get("Code"):
            return str(found["Code"]), str(found.get("Message", ""))
        last = one
    return type(last).__name__, str(last)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised for, pynamodb's own way of naming one included."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        named = getattr(at, "cause", None)
        at = named if isinstance(named, BaseException) else at.__cause__


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def sign_in_of(profiles: Mapping[str, Any], profile: str | None, environment: Mapping[str, str]) -> SignIn:
    """``profiles``: sections of the SDK's configuration. ``profile``: that of the command line, else None; then keys
    of the environment come first, as they do for the SDK."""
    if profile is None and environment.get(_KEYS):
        return SignIn(
            command=None,
            advice=f"They are keys of the environment ({_KEYS}): set new ones, and start dynatick ui again.",
        )
    name = profile or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    for _ in range(_MAX_SOURCES):
        values = profiles.get(name, {})
        source = values.get("source_profile")
        if source is None or source == name or source not in profiles:
            break
        name = source  # a role, which is assumed with its credentials
    with_profile = partial(_command, name)
    if "sso_session" in values or "sso_start_url" in values:
        return SignIn(command=with_profile("aws sso login"), advice=f"Sign in again; {_GOES_ON}")
    if "login_session" in values:
        return SignIn(command=with_profile("aws login"), advice=f"Sign in again; {_GOES_ON}")
    if "credential_process" in values:
        program = _program(str(values["credential_process"]))
        return SignIn(command=None, advice=f"{program} gives them (credential_process): sign in to it; {_GOES_ON}")
    if "aws_access_key_id" in values:
        return SignIn(
            command=with_profile("aws configure"), advice="Get new keys and enter them, then start dynatick ui again."
        )
    return _RENEW


def _command(profile: str, words: str) -> str:
    return words if profile == "default" else " ".join([words, "--profile", quoted(profile)])


def _program(command: str) -> str:
    """Without its arguments: a secret may be among them."""
    try:
        return next(iter(shlex.split(command)), "A program")
    except ValueError:
        return "A program"
