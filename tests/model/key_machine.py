"""Everything that may happen to tasks with limit keys, as rules in any request."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.model.base_machine import IDS, POLICIES
from tests.model.rows import RawRow, When
from tests.model.steps import step
from tests.model.task_machine import TaskMachine, raw_rows, scripts, whens

LIMITS = ("one=1", "two=2", "rate=6/m", "both=1:4/m")
KEYS = ("one:a", "one:a", "one:b", "two:a", "rate:a", "both:a", None)
FEW, MANY = 5, 25  # more of a key than its limit; more than one claim takes


class KeyMachine(TaskMachine):
    """The rules for tasks with limit keys. They come as raw rows; then clients do to them what they do to any task."""

    of = "keys"
    ids = ("a", "b", "c", "d", "k00", "k01")
    key_limits = LIMITS

    @step(task_id=IDS, row=raw_rows, script=scripts, policy=POLICIES, key=KEYS)
    def put(self, task_id: str, row: RawRow, script: tuple[str, ...], policy: Any, key: str | None = "one:a") -> None:
        """put-item, over whatever was there."""
        self._put(task_id, row, script, policy, key)

    def _put(
        self, task_id: str, row: RawRow, script: tuple[str, ...], policy: Any, key: str | None, **more: object
    ) -> None:
        now, start = self.model.simulation.instant, self.model.simulation.start
        task = self._expect_at(task_id, script, policy, row.when, must=row.must, stray=row.stray)
        task.not_before = row.earliest(now, start)
        given = {"retryPolicy": policy, "limitKey": key, **more}
        self.model.put(task, row.attributes(now) | {name: value for name, value in given.items() if value})

    @step(when=whens, script=scripts, key=KEYS, many=st.booleans())
    def put_many(self, when: When, script: tuple[str, ...], key: str | None = "one:a", many: bool = False) -> None:
        """Several of one key, each third with the script."""
        for n in range(MANY if many else FEW):
            self._put(f"k{n:02d}", RawRow(when), script if n % 3 == 0 else ("ok",), None, key)

    def insert(self, **_: Any) -> None:
        """They come as raw rows here."""

    insert_many = replace = postpone = insert

    def restore(self, **_: Any) -> None:
        """A lease that is restored is not that of the process which has it: it is killed, and no other waits for it."""
