"""Everything that may happen to tasks, as rules in any order."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from tests.model.installation import CLIENTS
from tests.model.lives import END, RUN, Life
from tests.model.rows import BAD_TIMES, NO_TIME, NOTATIONS, RawRow, When
from tests.model.seam import Order, Plan
from tests.model.steps import step
from tests.model.surroundings import POLICIES, Surroundings, plans, scripts

from dynatick.client import NewTask
from dynatick.domain.conditional_update import Absent, ConditionalUpdate, as_read
from dynatick.domain.lifecycle import is_terminal, state_of

NONSENSE = (("action", 7), ("retryPolicy", "never"), ("payload", "text"))
AROUND = timedelta(minutes=6)
IDS = ("a", "b", "c", "d")
BULK = 30  # more than a batch of the table, and than a page of the index
BACKLOG = 150  # more than a pass has in hand at once

ids = st.sampled_from(IDS)
whens = st.builds(
    When,
    notation=st.sampled_from(NOTATIONS),
    seconds=st.sampled_from((60.0, 0.0, 1.0, 20.0, 130.0, 300.0, 900.0, 3600.0, 20_000.0, -5.0, -61.0, -1800.0)),
    shard=st.sampled_from((1, 2, 5)),
)
raw_rows = st.builds(
    RawRow,
    when=whens,
    status=st.sampled_from((None, None, None, "scheduled", "scheduled", "running", "completed", "banana")),
    attempt=st.sampled_from((None, None, 0, "many")),
    action=st.booleans(),
    bad_time=st.sampled_from((None, None, None, None, *BAD_TIMES)),
    stray=st.sampled_from((False, False, True)),
    bulky=st.sampled_from((False,) * 9 + (True,)),
)


class Machine(Surroundings):
    """The rules for tasks."""

    of = "tasks"

    # -- inserts -------------------------------------------------------------------------------------------------------

    @step(task_id=ids | st.just("m03"), row=raw_rows, script=scripts, policy=st.sampled_from(POLICIES))
    def put(self, task_id: str, row: RawRow, script: tuple[str, ...], policy: Any) -> None:
        """put-item, over whatever was there."""
        now, start = self.model.simulation.instant, self.model.simulation.start
        life = self._life(task_id, script, policy, row.when, meant=row.meant)
        life.not_before, life.stray = row.earliest(now, start), row.stray
        attributes = row.attributes(now) | ({"retryPolicy": policy} if policy else {})
        self.model.put(life, attributes)

    @step(
        task_id=ids,
        when=whens,
        script=scripts,
        policy=st.sampled_from(POLICIES),
        plan=plans,
        client=st.integers(0, CLIENTS - 1),
    )
    def insert(self, task_id: str, when: When, script: tuple[str, ...], policy: Any, plan: Plan, client: int) -> None:
        now = self.model.simulation.instant
        life = self._life(task_id, script, policy, when)
        task = NewTask.from_row({"taskId": task_id, **when.attributes(now), "retryPolicy": policy, "life": life.number})
        order = Order("insert", lives={task_id: life})
        self._ask(order, lambda c: c.insert(
            task.task_id,
            task_date_time=task.task_date_time, due_at=task.due_at, delay_seconds=task.delay_seconds,
            retry_policy=task.retry_policy, attributes=task.attributes,
        ), plan, client)  # fmt: skip

    @step(when=whens, script=scripts, plan=plans, backlog=st.sampled_from((False,) * 7 + (True,)))
    def insert_many(self, when: When, script: tuple[str, ...], plan: Plan, backlog: bool = False) -> None:
        """``backlog``: more than the threads get done in two invocations, but for each tenth task, which has the
        script."""
        now = self.model.simulation.instant
        order, tasks = Order("insert_many"), []
        for n in range(BACKLOG if backlog else BULK):
            life = self._life(f"m{n:02d}", script if n % 10 == 3 else ("slow",) if backlog else ("ok",), None, when)
            order.lives[life.task_id] = life
            tasks.append({"taskId": life.task_id, **when.attributes(now), "life": life.number})
        self._ask(order, lambda c: list(c.insert_lazily(tasks)), plan, 0)

    def _life(self, task_id: str, script: tuple[str, ...], policy: Any, when: When, **known: Any) -> Life:
        policy, now, start = policy or {}, self.model.simulation.instant, self.model.simulation.start
        return self.model.book.enter(
            task_id,
            script=script,
            maximum=policy.get("maximumRetryAttempts", 3) + 1,
            backoff=policy.get("minBackoffSeconds", 5),
            not_before=when.earliest(now, start),
            due=when.latest(now, start),
            **known,
        )

    # -- changes -------------------------------------------------------------------------------------------------------

    @step(task_id=ids, wish=st.sampled_from(("cancel", "redrive", "run_now")), plan=plans)
    def change(self, task_id: str, wish: str, plan: Plan) -> None:
        self._ask(Order(wish), lambda c: getattr(c, wish)(task_id), plan, 0)

    @step(
        task_id=ids,
        when=whens.filter(lambda when: when.notation != NO_TIME),
        plan=plans,
        client=st.integers(0, CLIENTS - 1),
    )
    def reschedule(self, task_id: str, when: When, plan: Plan, client: int) -> None:
        now, start = self.model.simulation.instant, self.model.simulation.start
        time = NewTask.from_row({"taskId": task_id, **when.attributes(now)})
        order = Order("reschedule", not_before=when.earliest(now, start))
        self._ask(order, lambda c: c.reschedule(
            task_id, task_date_time=time.task_date_time, due_at=time.due_at, delay_seconds=time.delay_seconds
        ), plan, client)  # fmt: skip

    @step(wish=st.sampled_from(("cancel", "redrive")), dry=st.booleans(), plan=plans)
    def change_many(self, wish: str, dry: bool, plan: Plan) -> None:
        """All that wait, or have failed, of the time around now."""
        now = self.model.simulation.instant
        start, end = now - AROUND, now + AROUND
        order = Order("dry run" if dry else wish)
        self._ask(order, lambda c: list(getattr(c, f"{wish}_many")(start=start, end=end, dry_run=dry)), plan, 0)

    @step(task_id=ids)
    def delete(self, task_id: str) -> None:
        """delete-item, by hand."""
        self.model.table.delete(self.model.hand, task_id)

    @step()
    def expire(self) -> None:
        """Time to live deletes what carries an expiry."""
        self.model.expire()

    @step(task_id=ids, when=whens.filter(lambda when: when.notation != NO_TIME))
    def edit_time(self, task_id: str, when: When) -> None:
        """update-item of the time, by hand, of a task that has not ended."""
        model = self.model
        now, start, row = model.simulation.instant, model.simulation.start, model.table.get(task_id)
        times = dict(when.attributes(now))
        if row is None or is_terminal(row) or times.items() <= row.items():
            return
        life, asked = model.book.life_of(row), when.earliest(now, start)
        life.due = max(life.due, when.latest(now, start))
        if life.meant != RUN or state_of(row) == "running":
            life.unseen, life.not_before, life.meant = True, -math.inf, RUN if life.meant == RUN else END
        elif "taskDateTime" in times:
            life.not_before, life.asked = asked, asked
        else:  # until the scheduler sees it, the bucket is what counts; and without a status, always
            life.not_before = min(life.not_before, asked)
            life.asked = asked if state_of(row) == "scheduled" else None
        model.table.write(model.hand, ConditionalUpdate(task_id=task_id, set=times, conditions=(Absent("outcome"),)))

    @step(task_id=ids, time=st.sampled_from(BAD_TIMES))
    def corrupt_time(self, task_id: str, time: str) -> None:
        """update-item of a waiting task's time to nonsense."""
        row = self.model.table.get(task_id)
        if row is None or is_terminal(row) or state_of(row) == "running":
            return
        life = self.model.book.life_of(row)
        life.meant = END
        if state_of(row) not in ("unscheduled", "scheduled"):
            life.unseen = True  # the stream's filter hides changes of rows with any other status
        change = ConditionalUpdate(
            task_id=task_id, set={"taskDateTime": time}, conditions=as_read(row, "status", "outcome")
        )
        self.model.table.write(self.model.hand, change)

    @step(task_id=ids, nonsense=st.sampled_from(NONSENSE))
    def corrupt(self, task_id: str, nonsense: tuple[str, object]) -> None:
        """update-item of something else of a waiting task to nonsense."""
        row, (name, value) = self.model.table.get(task_id), nonsense
        if row is None or state_of(row) != "scheduled":
            return
        self.model.book.life_of(row).meant = END
        change = ConditionalUpdate(task_id=task_id, set={name: value}, conditions=as_read(row, "status", "outcome"))
        self.model.table.write(self.model.hand, change)

    @step(ago=st.sampled_from((20.0, 150.0, 1000.0)), what=st.sampled_from(("own", "tasks", "all")))
    def restore(self, ago: float, what: str) -> None:
        """Of the table, what it was then: cursors and settings, the tasks, or both."""
        self.model.restore(ago, own=what != "tasks", tasks=what != "own")

    @step(task_id=ids)
    def lose_record(self, task_id: str) -> None:
        row = self.model.table.get(task_id)
        if self.model.stream.drop(task_id) and row is not None:
            self.model.book.life_of(row).unseen = True
