"""The form of a pause."""

from __future__ import annotations

from dynatick.api.models.forms import ClosedForm


class PauseRequest(ClosedForm):
    """Who pauses, and why."""

    reason: str | None = None
    by: str | None = None
