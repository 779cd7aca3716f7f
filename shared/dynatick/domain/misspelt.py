"""Names that look like a time's and are none: a task whose only time has such a name would run at once, unasked."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from dynatick.domain.schedule import RECURRENCE
from dynatick.domain.task import Row
from dynatick.errors import InvalidInput

TIMES: Final = ("taskDateTime", "dueAt", "delaySeconds", *RECURRENCE)
"""The attributes that say when a row runs."""

_MEANT: Final = {
    **{name.lower(): name for name in TIMES},
    **dict.fromkeys(
        (
            "due", "duedate", "duedatetime", "dueon", "duetime", "executeat", "executeon", "executiontime", "fireat",
            "runat", "rundate", "runon", "scheduleat", "scheduledat", "scheduledate", "scheduledatetime",
            "scheduledfor", "scheduledon", "scheduledtime", "schedulefor", "scheduletime", "sendat", "startat",
            "triggerat",
        ),
        "dueAt",
    ),
    **dict.fromkeys(("bucket", "taskdate", "tasktime"), "taskDateTime"),
    **dict.fromkeys(("delay", "delayms", "delayminutes", "delaysec", "delaysecs", "delayinseconds"), "delaySeconds"),
    **dict.fromkeys(("cron", "rateexpression", "schedulerexpression"), "scheduleExpression"),
}  # fmt: skip
"""Other names for them, in small letters and without signs."""

_LONG: Final = [name.lower() for name in TIMES if len(name) >= 12]  # where a wrong letter still shows what was meant
_LIKENESS = 0.9
_MAX_NAMES, _LONGEST = 100, 40  # what is looked at, for a row may have thousands of names


def meant(name: str) -> str | None:
    """The attribute that somebody who wrote ``name`` may have meant. None for one of those, and for any other name."""
    if name in TIMES or len(name) > _LONGEST:
        return None
    plain = "".join(filter(str.isalnum, name)).lower()
    found = _MEANT.get(plain)
    if found is None and (like := get_close_matches(plain, _LONG, 1, _LIKENESS)):
        found = _MEANT[like[0]]
    return found


def check_names(row: Row, names: Iterable[str] | None = None) -> None:
    """Refuses a row whose only time has a name that means nothing. Raises InvalidInput.

    ``names``: those to look at; None: all of the row. With a time under its right name beside it, such an attribute is
    the user's own.
    """
    if any(row.get(name) is not None for name in TIMES):
        return
    for name in islice(row if names is None else names, _MAX_NAMES):
        right = meant(name)
        if right is not None:
            raise InvalidInput(
                name, row[name], f"expected {right}: under this name it says no time, and the task would run at once"
            )
