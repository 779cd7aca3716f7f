"""Everything that may happen around tasks: time, ticks, faults, other settings, reconcile; and the invariants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant
from proof.replay import refusal_of
from tests.model.completion import complete_all
from tests.model.expected_task import ExpectedTask
from tests.model.faulty_store import FAULTS, QUIET, Fault, Plan, Request
from tests.model.installation import ACTION, CLIENTS, INDEX_LAG, Installation, Tick
from tests.model.oracle import Oracle
from tests.model.standins import inside
from tests.model.steps import Step, chosen, step
from tests.model.stream import StreamMode
from tests.model.wake_up_queue import QueueMode

from dynatick.domain.buckets import minute_of
from dynatick.domain.lifecycle import state_of
from dynatick.engine.ports import Store
from dynatick.errors import (
    CompletionRefused,
    ConfigurationError,
    DynatickError,
    InvalidInput,
    StoreError,
    TaskExists,
    TaskNotFound,
    TransitionRefused,
)

FreshTable = tuple[Store, Callable[[Any], None], Callable[[], None]]
"""A fresh store, what put-item does to it, and what to do when it is over."""

QUEUE_MODE = QueueMode()
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
    timeout=(120.0, 20.0, 6.0),
    unlogged=(False,) * 5 + (True,),
    cold=(False, False, True),
)
ticks = chosen(
    Tick, events=(1, 1, 1, 0, 2), late=(0.3, 0.3, 3.0, 40.0, 130.0), plans=st.lists(plans, max_size=3).map(tuple)
)
lags = (INDEX_LAG, 0.0, 1.0, 4 * INDEX_LAG)
modes = chosen(
    StreamMode,
    seed=seeds,
    delay=(0.2, 3.0, 200.0),
    batch=(1, 3, 10),
    again=(0.0, 0.3),
    held=(False, False, True),
    mixed=st.booleans(),
)
queue_modes = st.just(QueueMode()) | chosen(
    QueueMode,
    seed=st.integers(1, 9999),
    lost=(0.0, 0.3, 1.0),
    again=(0.0, 0.5),
    early=(0.0, 3.0, 90.0),
    late=(0.0, 3.0, 200.0),
)
workers = (0, 0, 1, 3)
clients = st.integers(0, CLIENTS - 1)


class BaseMachine(RuleBasedStateMachine):
    """The rules for tasks and for schedules alike, over the store that ``table`` gives."""

    of: ClassVar[str]  # what else may happen
    oracle: ClassVar[type[Oracle]] = Oracle
    ids: ClassVar[Sequence[str]]
    key_limits: ClassVar[Sequence[str]] = ()
    rate_limits: ClassVar[Sequence[str]] = ()
    pauses: ClassVar[Sequence[float]] = (0.003, 0.02, 0.2, 2.0, 15.0, 50.0, 400.0, 10_000.0)
    tick_minutes: ClassVar[Sequence[int]] = (1, 1, 2, 5, 60)

    @staticmethod
    def table() -> FreshTable:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        store, put, self._drop_table = self.table()
        self.model = Installation(store, put, self.oracle, key_limits=self.key_limits, rate_limits=self.rate_limits)
        self._inside = inside(self.model.simulation)
        self._inside.__enter__()
        self._requests: list[Request] = []
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
    def wait_until_idle(self) -> None:
        self.model.wait_until_idle()

    @step(
        first=True,
        mode=modes,
        lag=lags,
        seed=seeds,
        grid=st.tuples(st.sampled_from((1, 1, 2, 5, 60)), st.sampled_from((1, 2, 3))),
        poll=(0.0,) * 6 + (2.0,),
        precise=st.booleans(),
        queue_mode=queue_modes,
        workers=workers,
    )
    def begin(
        self,
        mode: StreamMode,
        lag: float,
        seed: int,
        grid: tuple[int, int],
        poll: float = 0.0,
        queue_mode: QueueMode = QUEUE_MODE,
        **more: Any,
    ) -> None:
        """``poll``: seconds that a page takes, for good. With slow ones a gap of hours, which the simulation has time
        for, shows what fast ones do to one of weeks: polling takes longer than a lease, or than from tick to tick."""
        self.model.store.poll_seconds = poll
        self.model.reconfigure(tick_minutes=grid[0], shard_count=grid[1], **more)
        self.model.oracle.shortest_interval = grid[0]
        self._set_conditions(mode, lag, seed, queue_mode)

    @step(mode=modes, lag=lags, seed=seeds, dead_letters_refused=st.booleans(), queue_mode=queue_modes)
    def conditions(
        self, mode: StreamMode, lag: float, seed: int, dead_letters_refused: bool, queue_mode: QueueMode = QUEUE_MODE
    ) -> None:
        """How stream, index and queues are from now on."""
        self._set_conditions(mode, lag, seed, queue_mode)
        self.model.dead_letters_refused = dead_letters_refused

    def _set_conditions(self, mode: StreamMode, lag: float, seed: int, queue_mode: QueueMode) -> None:
        self.model.stream.set(mode)
        self.model.wake_up_queue.set(queue_mode)
        self.model.table.lag = lag
        self.model.table.rng.seed(seed)

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
        """A redeployment with a given number of workers for each shard."""
        self.model.reconfigure(workers=workers)

    @step(precise=st.booleans())
    def precision(self, precise: bool) -> None:
        """A redeployment with this precision: second, or tick."""
        self.model.reconfigure(precise=precise)

    @step(nth=st.integers(0, 9))
    def wake_up(self, nth: int) -> None:
        """A message that was sent before, from the last on, comes now: early, late, or once more."""
        self.model.wake_up_queue.deliver_again(nth)

    @step(plan=plans)
    def reconcile(self, plan: Plan) -> None:
        self.model.reconcile(plan)

    @step(repair=st.booleans(), plan=plans)
    def doctor(self, repair: bool, plan: Plan) -> None:
        self._send(Request("doctor", may_write=repair), lambda c: self.model.examine(c, repair=repair), plan)

    @step(pauses=st.booleans(), plan=plans, client=clients)
    def pause_action(self, pauses: bool, plan: Plan, client: int) -> None:
        """Pauses the action of all tasks that name none, or resumes it."""
        operation = "pause_action" if pauses else "resume_action"
        self._send(Request(operation), lambda c: getattr(c.operations, operation)(ACTION), plan, client)

    @step(task_id=IDS)
    def delete(self, task_id: str) -> None:
        """delete-item, by hand."""
        self.model.table.delete(self.model.hand, task_id)

    @step(task_id=IDS)
    def lose_record(self, task_id: str) -> None:
        row = self.model.table.get(task_id)
        if self.model.stream.drop(task_id) and row is not None:
            self.model.oracle.task_of(row).unseen = True

    def _expect(self, task_id: str, script: tuple[str, ...], policy: Any, **known: Any) -> ExpectedTask:
        return self.model.oracle.expect(
            task_id,
            script=script,
            maximum=(policy or {}).get("maximumRetryAttempts", 3) + 1,
            backoff=(policy or {}).get("minBackoffSeconds", 5),
            **known,
        )

    def _send(self, request: Request, do: Callable[[Any], object], plan: Plan, client: int = 0) -> None:
        self._requests.append(self.model.send_request(request, do, plan=plan, client=client))
        request.faultless = not plan.faults and plan.timeout > 100

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def no_violation(self) -> None:
        oracle = self.model.oracle
        for request in [request for request in self._requests if request.answer is not None]:
            self._requests.remove(request)
            self._check_answer(request)
        if self.model.is_idle:
            for row in self.model.overlooked():
                if not oracle.task_of(row).unseen and not self.model.waits_for_stream(row):
                    oracle.report(
                        f"{row['taskId']}: no tick will poll it, {state_of(row)} in {row.get('taskDateTime')}"
                    )
            oracle.check_edits(self.model.open_rows(), self.model.stream.pending())
        assert not oracle.violations, "\n".join(oracle.violations)

    def _check_answer(self, request: Request) -> None:
        match request.answer:
            case TransitionRefused() | TaskNotFound() | TaskExists() | CompletionRefused() if (
                request.effects and request.faultless
            ):
                self.model.oracle.report(f"{request.operation}: refused ({request.answer}), and it took effect")
            case InvalidInput(field="taskDateTime", value=str(value)) if value.startswith("#"):
                pass  # a shard that is not in use: the interface is right
            case InvalidInput(field="action") if request.operation == "replace":
                pass  # that of the task was changed by hand, and can't be understood
            case InvalidInput(field="scheduleExpression" | "endDate") as error if "it never runs" in str(error):
                pass  # its only time, or its end, is past
            case ConfigurationError() if request.operation in ("pause_action", "resume_action"):
                pass  # no tick has come yet
            case StoreError() | TransitionRefused() | TaskNotFound() | TaskExists() | CompletionRefused():
                pass
            case DynatickError() as error:
                self.model.oracle.report(f"{request.operation}: {error!r}")
            case _:
                if request.operation == "insert" and not request.effects:
                    self.model.oracle.report(f"{request.operation}: reported as done, and was not")

    def _complete(self) -> None:
        complete_all(self.model)

    def replay_trace(self) -> None:
        """What has happened is accepted by the rules alone, too."""
        if (refused := refusal_of(self.model.trace.events)) is not None:
            self.model.oracle.report(f"the replay of its trace: {refused}")

    def teardown(self) -> None:
        try:
            if not self.model.oracle.violations:
                self._complete()
                self.model.trace.add("rest", None)
            if not self.model.oracle.violations:
                self.replay_trace()
            assert not self.model.oracle.violations, "\n".join(self.model.oracle.violations)
        finally:
            self._inside.__exit__(None, None, None)
            self._drop_table()
