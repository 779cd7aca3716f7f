"""The form of problem details (RFC 9457)."""

from __future__ import annotations

from pydantic import Field

from dynatick.api.models.forms import Form, OpenForm


class WrongField(Form):
    """An invalid value."""

    detail: str
    pointer: str | None = Field(None, description="Its place in the body, as a JSON pointer.")
    parameter: str | None = Field(None, description="The parameter in path, query or header.")


class ProblemDetails(OpenForm):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="For programs: it does not change between versions.")
    requestId: str = Field(description="The request's name in the logs: give it to the operator.")
    errors: list[WrongField] | None = None
