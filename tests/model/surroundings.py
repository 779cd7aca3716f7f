"""What may happen around tasks: time, ticks, faults, other settings, reconcile; and what must hold all along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant
from tests.model.ending import come_to_an_end
from tests.model.installation import INDEX_LAG, Installation, Tick
from tests.model.lives import Life
from tests.model.post import Mail
from tests.model.seam import FAULTS, QUIET, Fault, Order, Plan
from tests.model.standins import inside
from tests.model.steps import Step, chosen, step
from tests.model.stream import Mode

from dynatick.domain.buckets import minute_of
from dynatick.domain.lifecycle import state_of
from dynatick.engine.ports import Store
from dynatick.errors import DynatickError, InvalidInput, StoreError, TaskExists, TaskNotFound, TransitionRefused

Fresh = tuple[Store, Callable[[Any], None], Callable[[], None]]
"""A fresh store, what put-item does to it, and what to do when it is over."""

NO_MAIL = Mail()
POLICIES = (
    None,
    {"maximumRetryAttempts": 0},
    {"maximumRetryAttempts": 1, "minBackoffSeconds": 0},
    {"maximumRetryAttempts": 2, "minBackoffSeconds": 60, "maxBackoffSeconds": 120},
)

IDS = st.runner().flatmap(lambda machine: st.sampled_from(machine.ids))
seeds = st.just(0) | st.integers(1, 9999)
faults = chosen(
    Fault,
    call=st.integers(1, 15) | st.integers(1, 60),
    kind=FAULTS,
    seconds=(3.0, 10.0, 50.0, 100.0),
    calls=(1, 1, 2, 6),
)
plans = st.just(QUIET) | chosen(
    Plan,
    seed=seeds,
    faults=st.lists(faults, max_size=3).map(tuple),
    skew=(0.0, 2.0, -2.0),
    life=(120.0, 20.0, 6.0),
    unlogged=(False,) * 5 + (True,),
    cold=(False, False, True),
)
ticks = chosen(
    Tick, events=(1, 1, 1, 0, 2), late=(0.3, 0.3, 3.0, 40.0, 130.0), plans=st.lists(plans, max_size=3).map(tuple)
)
lags = (INDEX_LAG, 0.0, 1.0, 4 * INDEX_LAG)
modes = chosen(
    Mode,
    seed=seeds,
    delay=(0.2, 3.0, 200.0),
    batch=(1, 3, 10),
    again=(0.0, 0.3),
    held=(False, False, True),
    mixed=st.booleans(),
)
mails = st.just(Mail()) | chosen(
    Mail,
    seed=st.integers(1, 9999),
    lost=(0.0, 0.3, 1.0),
    again=(0.0, 0.5),
    early=(0.0, 3.0, 90.0),
    late=(0.0, 3.0, 200.0),
)
workers = (0, 0, 1, 3)


class Surroundings(RuleBasedStateMachine):
    """The rules for tasks and for schedules alike, over the store that ``table`` gives."""

    of: ClassVar[str]  # what else may happen
    ids: ClassVar[Sequence[str]]
    pauses: ClassVar[Sequence[float]] = (0.003, 0.02, 0.2, 2.0, 15.0, 50.0, 400.0, 10_000.0)
    tick_minutes: ClassVar[Sequence[int]] = (1, 1, 2, 5, 60)

    @staticmethod
    def table() -> Fresh:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        store, put, self._drop_table = self.table()
        self.model = Installation(store, put)
        self._inside = inside(self.model.simulation)
        self._inside.__enter__()
        self._orders: list[Order] = []
        self.steps: list[Step] = []

    # -- time, ticks, faults -------------------------------------------------------------------------------------------

    @step(ticks=st.lists(ticks, min_size=1, max_size=5))
    def tick(self, ticks: list[Tick]) -> None:
        self.model.ticks(ticks)

    @step(tick=ticks, ago=(0, 0, 1, 45))
    def tick_again(self, tick: Tick, ago: int) -> None:
        """The tick of this minute or of an earlier one, now: once more, or by hand, or very late."""
        self.model.fire(minute_of(self.model.simulation.instant) - ago, tick)

    @step(seconds=st.runner().flatmap(lambda machine: st.sampled_from(machine.pauses)))
    def time_passes(self, seconds: float) -> None:
        self.model.pass_time(seconds)

    @step()
    def rest(self) -> None:
        self.model.rest()

    @step(
        first=True,
        mode=modes,
        lag=lags,
        seed=seeds,
        grid=st.tuples(st.sampled_from((1, 1, 2, 5, 60)), st.sampled_from((1, 2, 3))),
        poll=(0.0,) * 6 + (2.0,),
        precise=st.booleans(),
        mail=mails,
        workers=workers,
    )
    def begin(
        self,
        mode: Mode,
        lag: float,
        seed: int,
        grid: tuple[int, int],
        poll: float = 0.0,
        mail: Mail = NO_MAIL,
        **more: Any,
    ) -> None:
        """``poll``: seconds that a page takes, for good. With slow ones a gap of hours, which the simulation has time
        for, shows what fast ones do to one of weeks: polling takes longer than a lease, or than from tick to tick."""
        self.model.seam.poll_seconds = poll
        self.model.reconfigure(tick_minutes=grid[0], shard_count=grid[1], **more)
        self.model.book.shortest_interval = grid[0]
        self.surround(mode, lag, seed, mail)

    @step(mode=modes, lag=lags, seed=seeds, letters_refused=st.booleans(), mail=mails)
    def surroundings(self, mode: Mode, lag: float, seed: int, letters_refused: bool, mail: Mail = NO_MAIL) -> None:
        """How stream, index and queues are from now on."""
        self.surround(mode, lag, seed, mail)
        self.model.letters_refused = letters_refused

    def surround(self, mode: Mode, lag: float, seed: int, mail: Mail) -> None:
        self.model.stream.set(mode)
        self.model.post.set(mail)
        self.model.table.lag = lag
        self.model.table.dice.seed(seed)

    @step(plans=st.lists(plans, min_size=1, max_size=4))
    def plan(self, plans: list[Plan]) -> None:
        """The course of the processes that start next, schedulers included."""
        self.model.plan(plans)

    @step(
        grid=st.runner().flatmap(
            lambda machine: st.tuples(st.sampled_from(machine.tick_minutes), st.sampled_from((1, 2, 3)))
        )
    )
    def reconfigure(self, grid: tuple[int, int]) -> None:
        """A redeployment with another tick interval and number of shards."""
        self.model.reconfigure(tick_minutes=grid[0], shard_count=grid[1])

    @step(workers=workers)
    def max_workers(self, workers: int) -> None:
        """A redeployment with so many workers for each shard."""
        self.model.reconfigure(workers=workers)

    @step(precise=st.booleans())
    def precision(self, precise: bool) -> None:
        """A redeployment with this precision: second, or tick."""
        self.model.reconfigure(precise=precise)

    @step(nth=st.integers(0, 9))
    def wake_up(self, nth: int) -> None:
        """A message that was sent before, from the last on, comes now: early, late, or once more."""
        self.model.post.come_again(nth)

    @step(plan=plans)
    def reconcile(self, plan: Plan) -> None:
        self.model.reconcile(plan)

    @step(repair=st.booleans(), plan=plans)
    def doctor(self, repair: bool, plan: Plan) -> None:
        self._ask(Order("doctor", may_write=repair), lambda c: self.model.examine(c, repair=repair), plan)

    @step(task_id=IDS)
    def delete(self, task_id: str) -> None:
        """delete-item, by hand."""
        self.model.table.delete(self.model.hand, task_id)

    @step(task_id=IDS)
    def lose_record(self, task_id: str) -> None:
        row = self.model.table.get(task_id)
        if self.model.stream.drop(task_id) and row is not None:
            self.model.book.life_of(row).unseen = True

    def _life(self, task_id: str, script: tuple[str, ...], policy: Any, **known: Any) -> Life:
        return self.model.book.enter(
            task_id,
            script=script,
            maximum=(policy or {}).get("maximumRetryAttempts", 3) + 1,
            backoff=(policy or {}).get("minBackoffSeconds", 5),
            **known,
        )

    def _ask(self, order: Order, do: Callable[[Any], object], plan: Plan, client: int = 0) -> None:
        self._orders.append(self.model.ask(order, do, plan=plan, client=client))
        order.faultless = not plan.faults and plan.life > 100

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def no_violation(self) -> None:
        book = self.model.book
        for order in [order for order in self._orders if order.answer is not None]:
            self._orders.remove(order)
            self._check_answer(order)
        if self.model.at_rest:
            for row in self.model.overlooked():
                if not book.life_of(row).unseen:
                    book.say(f"{row['taskId']}: no tick will look at it, {state_of(row)} in {row.get('taskDateTime')}")
            book.check_edits(self.model.open_rows(), self.model.stream.pending())
        assert not book.wrong, "\n".join(book.wrong)

    def _check_answer(self, order: Order) -> None:
        match order.answer:
            case TransitionRefused() | TaskNotFound() | TaskExists() if order.effects and order.faultless:
                self.model.book.say(f"{order.operation}: refused ({order.answer}), and it took effect")
            case InvalidInput(field="taskDateTime", value=str(value)) if value.startswith("#"):
                pass  # a shard that is not in use: the interface is right
            case InvalidInput(field="scheduleExpression" | "endDate") as error if "it never runs" in str(error):
                pass  # its only time, or its end, is past
            case StoreError() | TransitionRefused() | TaskNotFound() | TaskExists():
                pass
            case DynatickError() as error:
                self.model.book.say(f"{order.operation}: {error!r}")
            case _:
                if order.operation == "insert" and not order.effects:
                    self.model.book.say(f"{order.operation}: said to be done, and was not")

    def _come_to_an_end(self) -> None:
        come_to_an_end(self.model)

    def teardown(self) -> None:
        try:
            if not self.model.book.wrong:
                self._come_to_an_end()
            assert not self.model.book.wrong, "\n".join(self.model.book.wrong)
        finally:
            self._inside.__exit__(None, None, None)
            self._drop_table()
