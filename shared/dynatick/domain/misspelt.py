"""Misspelt names of time attributes. A task whose only time has such a name would run at once."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.task import Row
from dynatick.errors import InvalidInput

TIMES: Final = (*attr.TIME_INPUTS, *attr.RECURRENCE)
"""The attributes that set when a row runs."""

_RIGHT_NAMES: Final = {
    **{name.lower(): name for name in TIMES},
    **dict.fromkeys(
        (
            "due", "duedate", "duedatetime", "dueon", "duetime", "executeat", "executeon", "executiontime", "fireat",
            "runat", "rundate", "runon", "scheduleat", "scheduledat", "scheduledate", "scheduledatetime",
            "scheduledfor", "scheduledon", "scheduledtime", "schedulefor", "scheduletime", "sendat", "startat",
            "triggerat",
        ),
        attr.DUE_AT,
    ),
    **dict.fromkeys(("bucket", "taskdate", "tasktime"), attr.TASK_DATE_TIME),
    **dict.fromkeys(
        ("delay", "delayms", "delayminutes", "delaysec", "delaysecs", "delayinseconds"), attr.DELAY_SECONDS
    ),
    **dict.fromkeys(("cron", "rateexpression", "schedulerexpression"), attr.SCHEDULE_EXPRESSION),
}  # fmt: skip
"""The right name for each other name, which is in lower case and without separators."""

_LONG_NAMES: Final = [name.lower() for name in TIMES if len(name) >= 12]  # recognisable with a wrong letter
_LIKENESS = 0.9
_LIKENESS_OF_DUE_AT = 0.85  # a letter too many, or one too few
_MAX_NAMES, _MAX_CHARACTERS = 100, 40  # of the names to check; a row can have thousands


def right_name(name: str) -> str | None:
    """The time attribute that ``name`` probably stands for. None for a right name, and for any other name."""
    if name in TIMES or len(name) > _MAX_CHARACTERS:
        return None
    plain = "".join(filter(str.isalnum, name)).lower()
    found = _RIGHT_NAMES.get(plain)
    if found is None and (like := get_close_matches(plain, _LONG_NAMES, 1, _LIKENESS)):
        found = _RIGHT_NAMES[like[0]]
    if found is None and get_close_matches(plain, ["dueat"], 1, _LIKENESS_OF_DUE_AT):
        found = attr.DUE_AT
    return found


def check_names(row: Row, names: Iterable[str] | None = None) -> None:
    """Refuses a row whose only time has a misspelt name. Raises InvalidInput.

    ``names``: the names to check; None: all names of the row. In a row that also has a time under its right name, such
    an attribute counts as the user's own.
    """
    if any(row.get(name) is not None for name in TIMES):
        return
    for name in islice(row if names is None else names, _MAX_NAMES):
        right = right_name(name)
        if right is not None:
            raise InvalidInput(
                name, row[name], f"expected {right}: under this name it sets no time, and the task would run at once"
            )
