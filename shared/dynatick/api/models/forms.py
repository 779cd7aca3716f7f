"""The base classes of all forms."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Form(BaseModel):
    """Built when it is first used, since a request needs at most one form."""

    model_config = ConfigDict(defer_build=True)


class ClosedForm(Form):
    """A form that allows no other attributes."""

    model_config = ConfigDict(extra="forbid", strict=True)
