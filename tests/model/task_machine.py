"""Everything that may happen to tasks, as rules in any request."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from tests.model.base_machine import IDS, POLICIES, BaseMachine, clients, plans
from tests.model.expected_task import END, RUN, ExpectedTask
from tests.model.faulty_store import Plan, Request
from tests.model.rows import BAD_TIMES, NO_TIME, NOTATIONS, RawRow, When
from tests.model.steps import chosen, step

from dynatick.domain.completion import completion_token
from dynatick.domain.conditional_update import Absent, ConditionalUpdate, as_read
from dynatick.domain.lifecycle import is_terminal, state_of

NONSENSE = (
    *(("taskDateTime", time) for time in BAD_TIMES),
    ("action", 7),
    ("retryPolicy", "never"),
    ("payload", "text"),
)
AROUND = timedelta(minutes=6)
CLAIMED = ("running", "waiting")
BULK = 30  # more than a batch of the table, and than a page of the index
BACKLOG = 150  # more than a pass has in hand at once

whens = chosen(
    When,
    notation=NOTATIONS,
    seconds=(60.0, 0.0, 1.0, 20.0, 130.0, 300.0, 900.0, 3600.0, 20_000.0, -5.0, -61.0, -1800.0),
    shard=(1, 2, 5),
)
times = whens.filter(lambda when: when.notation != NO_TIME)
raw_rows = chosen(
    RawRow,
    when=whens,
    status=(None, None, None, "scheduled", "scheduled", "running", "completed", "banana"),
    attempt=(None, None, 0, "many"),
    action=st.booleans(),
    bad_time=(None, None, None, None, *BAD_TIMES),
    stray=(False, False, True),
    bulky=(False,) * 9 + (True,),
)
scripts = st.lists(
    st.sampled_from(("ok", "commit", "error", "permanent", "slow", "long", "later", "hang", "poison")),
    min_size=1,
    max_size=4,
).map(tuple)


class TaskMachine(BaseMachine):
    """The rules for tasks."""

    of = "tasks"
    ids = ("a", "b", "c", "d")

    # -- inserts -------------------------------------------------------------------------------------------------------

    @step(task_id=IDS | st.just("m03"), row=raw_rows, script=scripts, policy=POLICIES)
    def put(self, task_id: str, row: RawRow, script: tuple[str, ...], policy: Any) -> None:
        """put-item, over whatever was there."""
        now, start = self.model.simulation.instant, self.model.simulation.start
        task = self._expect_at(task_id, script, policy, row.when, must=row.must, stray=row.stray)
        task.not_before = row.earliest(now, start)
        self.model.put(task, row.attributes(now) | ({"retryPolicy": policy} if policy else {}))

    @step(task_id=IDS, when=whens, script=scripts, policy=POLICIES, plan=plans, client=clients)
    def insert(self, task_id: str, when: When, script: tuple[str, ...], policy: Any, plan: Plan, client: int) -> None:
        task = self._expect_at(task_id, script, policy, when)
        times = when.arguments(self.model.simulation.instant)
        self._send(
            Request("insert", tasks={task_id: task}),
            lambda c: c.insert(task_id, **times, retry_policy=policy, attributes={"expected": task.number}),
            plan,
            client,
        )

    @step(when=whens, script=scripts, plan=plans, backlog=(False,) * 7 + (True,))
    def insert_many(self, when: When, script: tuple[str, ...], plan: Plan, backlog: bool = False) -> None:
        """``backlog``: more than the threads get done in two invocations, but for each tenth task, which has the
        script."""
        now = self.model.simulation.instant
        request, tasks = Request("insert_many"), []
        for n in range(BACKLOG if backlog else BULK):
            task = self._expect_at(
                f"m{n:02d}", script if n % 10 == 3 else ("slow",) if backlog else ("ok",), None, when
            )
            request.tasks[task.task_id] = task
            tasks.append({"taskId": task.task_id, **when.attributes(now), "expected": task.number})
        self._send(request, lambda c: list(c.insert_lazily(tasks)), plan)

    def _expect_at(self, task_id: str, script: tuple[str, ...], policy: Any, when: When, **known: Any) -> ExpectedTask:
        now, start = self.model.simulation.instant, self.model.simulation.start
        times = {"not_before": when.earliest(now, start), "due": when.latest(now, start)}
        return self._expect(task_id, script, policy, **times, **known)

    # -- changes -------------------------------------------------------------------------------------------------------

    @step(task_id=IDS, operation=("cancel", "redrive", "restore", "run_now"), plan=plans)
    def change(self, task_id: str, operation: str, plan: Plan) -> None:
        self._send(Request(operation), lambda c: getattr(c, operation)(task_id), plan)

    @step(task_id=IDS, when=times, plan=plans, client=clients)
    def reschedule(self, task_id: str, when: When, plan: Plan, client: int) -> None:
        now, start = self.model.simulation.instant, self.model.simulation.start
        request, times = Request("reschedule", not_before=when.earliest(now, start)), when.arguments(now)
        self._send(request, lambda c: c.reschedule(task_id, **times), plan, client)

    @step(task_id=IDS, when=times, script=scripts, policy=POLICIES, plan=plans, client=clients)
    def replace(self, task_id: str, when: When, script: tuple[str, ...], policy: Any, plan: Plan, client: int) -> None:
        task = self._expect_at(task_id, script, policy, when)
        given = when.arguments(self.model.simulation.instant) | {"retry_policy": policy, "if_exists": "replace"}
        self._send(
            Request("replace", tasks={task_id: task}),
            lambda c: c.insert(task_id, **given, attributes={"expected": task.number}),
            plan,
            client,
        )

    @step(task_id=IDS, when=times, until=(None, 60.0, 1200.0), plan=plans, client=clients)
    def postpone(self, task_id: str, when: When, until: float | None, plan: Plan, client: int) -> None:
        task = self._expect_at(task_id, ("ok",), None, when)
        given = when.arguments(self.model.simulation.instant) | {"if_exists": "postpone"}
        if until is not None:
            given["until"] = timedelta(seconds=until)
        self._send(
            Request("postpone", tasks={task_id: task}, until=until),
            lambda c: c.insert(task_id, **given, attributes={"expected": task.number}),
            plan,
            client,
        )

    @step(
        task_id=IDS,
        operation=("complete", "complete", "fail", "fail for now", "heartbeat"),
        latest=(True, True, False),
        plan=plans,
        client=clients,
    )
    def settle(self, task_id: str, operation: str, latest: bool, plan: Plan, client: int) -> None:
        """By the completion token of its latest attempt that was handed over, or of the first."""
        tokens = self.model.oracle.tokens.get(task_id, [completion_token("forged", task_id)])
        token = tokens[-1 if latest else 0]

        def do(c: Any) -> object:
            if operation.startswith("fail"):
                return c.fail(token, "no", retry=operation == "fail for now")
            return c.heartbeat(token) if operation == "heartbeat" else c.complete(token, 1)

        self._send(Request("completion", token=token), do, plan, client)

    @step(operation=("cancel", "redrive", "restore"), dry=st.booleans(), plan=plans)
    def change_many(self, operation: str, dry: bool, plan: Plan) -> None:
        """Changes all tasks of the time around now that wait, or have failed."""
        now = self.model.simulation.instant
        start, end = now - AROUND, now + AROUND
        request = Request("dry run" if dry else operation)
        self._send(request, lambda c: list(getattr(c, f"{operation}_many")(start=start, end=end, dry_run=dry)), plan)

    @step()
    def expire(self) -> None:
        """Time to live deletes what carries an expiry."""
        self.model.expire()

    @step(task_id=IDS, when=times)
    def edit_time(self, task_id: str, when: When) -> None:
        """update-item of the time, by hand, of a task that has not ended."""
        model = self.model
        now, start, row = model.simulation.instant, model.simulation.start, model.table.get(task_id)
        times = dict(when.attributes(now))
        if row is None or is_terminal(row) or times.items() <= row.items():
            return
        task, earliest = model.oracle.task_of(row), when.earliest(now, start)
        task.due = max(task.due, when.latest(now, start))
        if task.must != RUN or state_of(row) in CLAIMED:
            task.unseen, task.not_before, task.must = True, -math.inf, RUN if task.must == RUN else END
        elif "taskDateTime" in times:
            task.not_before, task.edited_to = earliest, earliest
        else:  # until the scheduler sees it, the bucket is what counts; and without a status, always
            task.not_before = min(task.not_before, earliest)
            task.edited_to = earliest if state_of(row) == "scheduled" else None
        model.table.write(model.hand, ConditionalUpdate(task_id=task_id, set=times, conditions=(Absent("outcome"),)))

    @step(task_id=IDS, nonsense=NONSENSE)
    def corrupt(self, task_id: str, nonsense: tuple[str, object]) -> None:
        """update-item of a waiting task's time, or of something else, to nonsense."""
        row, (name, value) = self.model.table.get(task_id), nonsense
        if row is None or is_terminal(row) or state_of(row) in CLAIMED:
            return
        if name != "taskDateTime" and state_of(row) != "scheduled":
            return
        task = self.model.oracle.task_of(row)
        task.must = END
        if state_of(row) not in ("unscheduled", "scheduled"):
            task.unseen = True  # the stream's filter hides changes of rows with any other status
        change = ConditionalUpdate(task_id=task_id, set={name: value}, conditions=as_read(row, "status", "outcome"))
        self.model.table.write(self.model.hand, change)

    @step(ago=(20.0, 150.0, 1000.0), what=("own", "tasks", "all"))
    def restore(self, ago: float, what: str) -> None:
        """Restores what the table was then: cursors and settings, the tasks, or both."""
        self.model.restore(ago, own=what != "tasks", tasks=what != "own")
