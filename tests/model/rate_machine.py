"""Everything that may happen to tasks of actions with a rate limit, as rules in any request."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.model.base_machine import IDS, POLICIES
from tests.model.key_machine import FEW, MANY, KeyMachine
from tests.model.rows import RawRow, When
from tests.model.steps import step
from tests.model.task_machine import raw_rows, scripts, whens

RATES = ("seldom=15/m", "often=4/s")
"""Of the first, a start may be reserved while a task waits for the one before."""

ACTIONS = ("seldom", "seldom", "often", "log")
KEYS = (None, None, None, "two:a", "rate:a")


class RateMachine(KeyMachine):
    """The rules for tasks with rate limits, some of which have limit keys, too. They come as raw rows."""

    of = "rates"
    rate_limits = RATES

    @step(task_id=IDS, row=raw_rows, script=scripts, policy=POLICIES, key=KEYS, action=ACTIONS)
    def put(
        self,
        task_id: str,
        row: RawRow,
        script: tuple[str, ...],
        policy: Any,
        key: str | None = None,
        action: str = "seldom",
    ) -> None:
        """put-item, over whatever was there."""
        self._put(task_id, row, script, policy, key, action=action if row.action else None)

    @step(when=whens, script=scripts, key=KEYS, action=ACTIONS, many=st.booleans())
    def put_many(
        self,
        when: When,
        script: tuple[str, ...],
        key: str | None = None,
        action: str = "seldom",
        many: bool = False,
    ) -> None:
        """Several of one action, each third with the script."""
        for n in range(MANY if many else FEW):
            self._put(f"k{n:02d}", RawRow(when), script if n % 3 == 0 else ("ok",), None, key, action=action)
