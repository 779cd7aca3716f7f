"""Everything that may happen to an installation, as rules in any order; and what must hold all along."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant
from tests.model.ending import come_to_an_end
from tests.model.installation import CLIENTS, INDEX_LAG, Installation, Tick
from tests.model.lives import END, RUN, Life
from tests.model.rows import BAD_TIMES, NO_TIME, NOTATIONS, RawRow, When
from tests.model.seam import FAULTS, QUIET, Fault, Order, Plan
from tests.model.standins import inside
from tests.model.steps import Step, first_step, step
from tests.model.stream import Mode

from dynatick.client import NewTask
from dynatick.domain.buckets import minute_of
from dynatick.domain.change import Absent, Change, as_read
from dynatick.domain.lifecycle import is_terminal, state_of
from dynatick.engine.ports import Store
from dynatick.errors import DynatickError, InvalidInput, StoreError, TaskExists, TaskNotFound, TransitionRefused

Fresh = tuple[Store, Callable[[Any], None], Callable[[], None]]
"""A fresh store, what put-item does to it, and what to do when it is over."""

NONSENSE = (("action", 7), ("retryPolicy", "never"), ("payload", "text"))
AROUND = timedelta(minutes=6)
IDS = ("a", "b", "c", "d")
BULK = 30  # more than a batch of the table, and than a page of the index
POLICIES = (
    None,
    {"maximumRetryAttempts": 0},
    {"maximumRetryAttempts": 1, "minBackoffSeconds": 0},
    {"maximumRetryAttempts": 2, "minBackoffSeconds": 60, "maxBackoffSeconds": 120},
)

ids = st.sampled_from(IDS)
seeds = st.just(0) | st.integers(1, 9999)
faults = st.builds(
    Fault,
    call=st.integers(1, 15) | st.integers(1, 60),
    kind=st.sampled_from(FAULTS),
    seconds=st.sampled_from((3.0, 10.0, 50.0, 100.0)),
    calls=st.sampled_from((1, 1, 2, 6)),
)
plans = st.just(QUIET) | st.builds(
    Plan,
    seed=seeds,
    faults=st.lists(faults, max_size=3).map(tuple),
    skew=st.sampled_from((0.0, 2.0, -2.0)),
    life=st.sampled_from((120.0, 20.0, 6.0)),
)
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
scripts = st.lists(
    st.sampled_from(("ok", "error", "permanent", "slow", "long", "hang", "poison")), min_size=1, max_size=4
).map(tuple)
ticks = st.builds(
    Tick,
    events=st.sampled_from((1, 1, 1, 0, 2)),
    late=st.sampled_from((0.3, 0.3, 3.0, 40.0, 130.0)),
    plans=st.lists(plans, max_size=3).map(tuple),
)
modes = st.builds(
    Mode,
    seed=seeds,
    delay=st.sampled_from((0.2, 3.0, 200.0)),
    batch=st.sampled_from((1, 3, 10)),
    again=st.sampled_from((0.0, 0.3)),
    held=st.sampled_from((False, False, True)),
    mixed=st.booleans(),
)

lags = st.sampled_from((INDEX_LAG, 0.0, 1.0))
grids = st.tuples(st.sampled_from((1, 1, 2, 5, 60)), st.sampled_from((1, 2, 3)))


class Machine(RuleBasedStateMachine):
    """The rules, over the store that ``table`` gives."""

    @staticmethod
    def table() -> Fresh:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        store, put, self._drop_table = self.table()
        self.world = Installation(store, put)
        self._inside = inside(self.world.simulation)
        self._inside.__enter__()
        self._orders: list[Order] = []
        self.steps: list[Step] = []

    # -- inserts -------------------------------------------------------------------------------------------------------

    @step(task_id=ids, row=raw_rows, script=scripts, policy=st.sampled_from(POLICIES))
    def put(self, task_id: str, row: RawRow, script: tuple[str, ...], policy: Any) -> None:
        """put-item, over whatever was there."""
        now, start = self.world.simulation.instant, self.world.simulation.start
        life = self._life(task_id, script, policy, row.when, meant=row.meant)
        life.not_before, life.stray = row.earliest(now, start), row.stray
        attributes = row.attributes(now) | ({"retryPolicy": policy} if policy else {})
        self.world.put(life, attributes)

    @step(
        task_id=ids,
        when=whens,
        script=scripts,
        policy=st.sampled_from(POLICIES),
        plan=plans,
        client=st.integers(0, CLIENTS - 1),
    )
    def insert(self, task_id: str, when: When, script: tuple[str, ...], policy: Any, plan: Plan, client: int) -> None:
        now = self.world.simulation.instant
        life = self._life(task_id, script, policy, when)
        task = NewTask.from_row({"taskId": task_id, **when.attributes(now), "retryPolicy": policy, "life": life.number})
        order = Order("insert", lives={task_id: life})
        self._ask(order, lambda c: c.insert(
            task.task_id,
            task_date_time=task.task_date_time, due_at=task.due_at, delay_seconds=task.delay_seconds,
            retry_policy=task.retry_policy, attributes=task.attributes,
        ), plan, client)  # fmt: skip

    @step(when=whens, script=scripts, plan=plans)
    def insert_many(self, when: When, script: tuple[str, ...], plan: Plan) -> None:
        now = self.world.simulation.instant
        order, tasks = Order("insert_many"), []
        for n in range(BULK):
            life = self._life(f"m{n:02d}", script if n % 10 == 3 else ("ok",), None, when)
            order.lives[life.task_id] = life
            tasks.append({"taskId": life.task_id, **when.attributes(now), "life": life.number})
        self._ask(order, lambda c: list(c.insert_many(tasks)), plan, 0)

    def _life(self, task_id: str, script: tuple[str, ...], policy: Any, when: When, **known: Any) -> Life:
        policy, now, start = policy or {}, self.world.simulation.instant, self.world.simulation.start
        return self.world.book.enter(
            task_id,
            script=script,
            maximum=policy.get("maximumRetryAttempts", 3) + 1,
            backoff=policy.get("minBackoffSeconds", 5),
            not_before=when.earliest(now, start),
            due=when.latest(now, start),
            **known,
        )

    # -- changes -------------------------------------------------------------------------------------------------------

    @step(task_id=ids, wish=st.sampled_from(("cancel", "retry", "run_now")), plan=plans)
    def change(self, task_id: str, wish: str, plan: Plan) -> None:
        self._ask(Order(wish), lambda c: getattr(c, wish)(task_id), plan, 0)

    @step(
        task_id=ids,
        when=whens.filter(lambda when: when.notation != NO_TIME),
        plan=plans,
        client=st.integers(0, CLIENTS - 1),
    )
    def reschedule(self, task_id: str, when: When, plan: Plan, client: int) -> None:
        now, start = self.world.simulation.instant, self.world.simulation.start
        time = NewTask.from_row({"taskId": task_id, **when.attributes(now)})
        order = Order("reschedule", not_before=when.earliest(now, start))
        self._ask(order, lambda c: c.reschedule(
            task_id, task_date_time=time.task_date_time, due_at=time.due_at, delay_seconds=time.delay_seconds
        ), plan, client)  # fmt: skip

    @step(wish=st.sampled_from(("cancel", "retry")), dry=st.booleans(), plan=plans)
    def change_many(self, wish: str, dry: bool, plan: Plan) -> None:
        """All that wait, or have failed, of the time around now."""
        now = self.world.simulation.instant
        start, end = now - AROUND, now + AROUND
        order = Order("dry run" if dry else wish)
        self._ask(order, lambda c: list(getattr(c, f"{wish}_many")(start=start, end=end, dry_run=dry)), plan, 0)

    def _ask(self, order: Order, do: Callable[[Any], object], plan: Plan, client: int) -> None:
        self._orders.append(self.world.ask(order, do, plan=plan, client=client))
        order.faultless = not plan.faults and plan.life > 100

    @step(task_id=ids)
    def delete(self, task_id: str) -> None:
        """delete-item, by hand."""
        self.world.table.delete(self.world.hand, task_id)

    @step()
    def expire(self) -> None:
        """Time to live deletes what carries an expiry."""
        self.world.expire()

    @step(task_id=ids, when=whens.filter(lambda when: when.notation != NO_TIME))
    def edit_time(self, task_id: str, when: When) -> None:
        """update-item of the time, by hand, of a task that has not ended."""
        world = self.world
        now, start, row = world.simulation.instant, world.simulation.start, world.table.get(task_id)
        times = dict(when.attributes(now))
        if row is None or is_terminal(row) or times.items() <= row.items():
            return
        life, asked = world.book.life_of(row), when.earliest(now, start)
        life.due = max(life.due, when.latest(now, start))
        if life.meant != RUN or state_of(row) == "running":
            life.unseen, life.not_before, life.meant = True, -math.inf, RUN if life.meant == RUN else END
        elif "taskDateTime" in times:
            life.not_before, life.asked = asked, asked
        else:  # until the scheduler sees it, the bucket is what counts; and without a status, always
            life.not_before = min(life.not_before, asked)
            life.asked = asked if state_of(row) == "scheduled" else None
        world.table.write(world.hand, Change(task_id=task_id, set=times, when=(Absent("outcome"),)))

    @step(task_id=ids, time=st.sampled_from(BAD_TIMES))
    def spoil_time(self, task_id: str, time: str) -> None:
        """update-item of a waiting task's time to nonsense."""
        row = self.world.table.get(task_id)
        if row is None or is_terminal(row) or state_of(row) == "running":
            return
        self.world.book.life_of(row).meant = END
        change = Change(task_id=task_id, set={"taskDateTime": time}, when=as_read(row, "status", "outcome"))
        self.world.table.write(self.world.hand, change)

    @step(task_id=ids, nonsense=st.sampled_from(NONSENSE))
    def spoil(self, task_id: str, nonsense: tuple[str, object]) -> None:
        """update-item of something else of a waiting task to nonsense."""
        row, (name, value) = self.world.table.get(task_id), nonsense
        if row is None or state_of(row) != "scheduled":
            return
        self.world.book.life_of(row).meant = END
        change = Change(task_id=task_id, set={name: value}, when=as_read(row, "status", "outcome"))
        self.world.table.write(self.world.hand, change)

    # -- time, ticks, faults -------------------------------------------------------------------------------------------

    @step(ticks=st.lists(ticks, min_size=1, max_size=5))
    def tick(self, ticks: list[Tick]) -> None:
        self.world.ticks(ticks)

    @step(tick=ticks, ago=st.sampled_from((0, 0, 1, 45)))
    def tick_again(self, tick: Tick, ago: int) -> None:
        """The tick of this minute or of an earlier one, now: once more, or by hand, or very late."""
        self.world.fire(minute_of(self.world.simulation.instant) - ago, tick)

    @step(seconds=st.sampled_from((0.003, 0.02, 0.2, 2.0, 15.0, 50.0, 400.0, 10_000.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @step()
    def rest(self) -> None:
        self.world.rest()

    @first_step(mode=modes, lag=lags, seed=seeds, grid=grids)
    def begin(self, mode: Mode, lag: float, seed: int, grid: tuple[int, int]) -> None:
        self.world.reconfigure(tick_minutes=grid[0], shard_count=grid[1])
        self._surround(mode, lag, seed)

    @step(mode=modes, lag=lags, seed=seeds, letters_refused=st.booleans())
    def surroundings(self, mode: Mode, lag: float, seed: int, letters_refused: bool) -> None:
        """How stream, index and dead-letter queue are from now on."""
        self._surround(mode, lag, seed)
        self.world.letters_refused = letters_refused

    def _surround(self, mode: Mode, lag: float, seed: int) -> None:
        self.world.stream.set(mode)
        self.world.table.lag = lag
        self.world.table.dice.seed(seed)

    @step(task_id=ids)
    def lose_record(self, task_id: str) -> None:
        row = self.world.table.get(task_id)
        if self.world.stream.drop(task_id) and row is not None:
            self.world.book.life_of(row).unseen = True

    @step(plans=st.lists(plans, min_size=1, max_size=4))
    def plan(self, plans: list[Plan]) -> None:
        """What becomes of the processes that start next, schedulers included."""
        self.world.plan(plans)

    @step(grid=grids)
    def reconfigure(self, grid: tuple[int, int]) -> None:
        """A redeployment with another tick interval and number of shards."""
        self.world.reconfigure(tick_minutes=grid[0], shard_count=grid[1])

    @step(plan=plans)
    def reconcile(self, plan: Plan) -> None:
        self.world.reconcile(plan)

    @step(mend=st.booleans(), plan=plans)
    def doctor(self, mend: bool, plan: Plan) -> None:
        order = Order("doctor", may_write=mend)
        self._ask(order, lambda c: self.world.examine(c, mend=mend), plan, 0)

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_wrong(self) -> None:
        book = self.world.book
        for order in [order for order in self._orders if order.answer is not None]:
            self._orders.remove(order)
            self._check_answer(order)
        if self.world.at_rest:
            for row in self.world.overlooked():
                if not book.life_of(row).unseen:
                    book.say(f"{row['taskId']}: no tick will look at it, {state_of(row)} in {row.get('taskDateTime')}")
            book.check_edits(self.world.open_rows(), self.world.stream.pending())
        assert not book.wrong, "\n".join(book.wrong)

    def _check_answer(self, order: Order) -> None:
        match order.answer:
            case TransitionRefused() | TaskNotFound() | TaskExists() if order.effects and order.faultless:
                self.world.book.say(f"{order.wish}: refused ({order.answer}), and it took effect")
            case InvalidInput(field="taskDateTime", value=str(value)) if value.startswith("#"):
                pass  # a shard that is not in use: the door is right
            case StoreError() | TransitionRefused() | TaskNotFound() | TaskExists():
                pass
            case DynatickError() as error:
                self.world.book.say(f"{order.wish}: {error!r}")
            case _:
                if order.wish == "insert" and not order.effects:
                    self.world.book.say(f"{order.wish}: said to be done, and was not")

    def teardown(self) -> None:
        try:
            if not self.world.book.wrong:
                come_to_an_end(self.world)
            assert not self.world.book.wrong, "\n".join(self.world.book.wrong)
        finally:
            self._inside.__exit__(None, None, None)
            self._drop_table()
