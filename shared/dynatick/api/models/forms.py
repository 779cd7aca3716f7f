"""The base classes of all forms, and the forms of requests about the installation and about dead letters."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_LETTERS = 1000
"""Letters in one answer."""


class Form(BaseModel):
    """Built when it is first used, since a request needs at most one form."""

    model_config = ConfigDict(defer_build=True)


class ClosedForm(Form):
    """A form that allows no other attributes."""

    model_config = ConfigDict(extra="forbid", strict=True)


Began = Annotated[
    str | None,
    Field(
        description="If this request goes on with earlier ones, the `began` of their answers: what ended since is left "
        "out.",
        examples=["2026-12-31T12:00:00Z"],
    ),
]


class PauseRequest(ClosedForm):
    """Who pauses, and why."""

    reason: str | None = None
    by: str | None = None


class DeadLetterSelection(ClosedForm):
    """The dead letters to handle."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dryRun": True}]})

    action: str | None = Field(None, description="Only those of this action.", examples=["webhook"])
    error: str | None = Field(None, description="Only those with this in their error.", examples=["answered 503"])
    dryRun: bool = Field(False, description="Return what would be done, and change nothing.")
    limit: int = Field(
        MAX_LETTERS,
        ge=1,
        le=MAX_LETTERS,
        description="The maximum number of letters; those that are kept don't count.",
    )


class DeadLetterRedrive(DeadLetterSelection):
    """The dead letters whose tasks to redrive."""

    began: Began = None


class DeadLetterPurge(DeadLetterSelection):
    """The dead letters to delete."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"obsolete": True, "dryRun": True}]})

    obsolete: bool = Field(False, description="Only those whose state is redriven, ended or gone.")
