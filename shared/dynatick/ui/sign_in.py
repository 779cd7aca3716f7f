"""How the credentials of a profile are renewed, by what its configuration says. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dynatick.domain.terminal_text import quoted

_KEYS = "AWS_ACCESS_KEY_ID"
_MAX_SOURCES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class SignIn:
    """``command``: None if there is none that would be right."""

    command: str | None
    advice: str


UNKNOWN = SignIn(command=None, advice="Renew them, then start dynatick ui again.")
_GOES_ON = "the pages go on by themselves."


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
    return UNKNOWN


def _command(profile: str, words: str) -> str:
    return words if profile == "default" else " ".join([words, "--profile", quoted(profile)])


def _program(command: str) -> str:
    """Without its arguments: a secret may be among them."""
    try:
        return next(iter(shlex.split(command)), "A program")
    except ValueError:
        return "A program"
