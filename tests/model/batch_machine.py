"""Everything that may happen to batches, as rules in any request."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from tests.model.base_machine import IDS, POLICIES, BaseMachine, clients, plans
from tests.model.batch_oracle import BatchOracle
from tests.model.completion import complete_rows, stop_faults
from tests.model.faulty_store import QUIET, Plan, Request
from tests.model.key_machine import LIMITS
from tests.model.oracle import Oracle
from tests.model.steps import step

from dynatick.client import TaskClient
from dynatick.domain.batches import Batch
from dynatick.domain.packs import member_id

scripts = st.lists(
    st.sampled_from(
        (
            ("ok",),
            ("ok",),
            ("error", "ok"),
            ("permanent",),
            ("slow",),
            ("hang", "ok"),
            ("poison", "ok"),
            ("later", "ok"),
        )
    ),
    min_size=1,
    max_size=7,
).map(tuple)


@dataclass(frozen=True)
class _Loaded:
    """What a batch was begun with."""

    members: int
    due_at: datetime
    over: int
    policy: Any
    key: str | None = None

    def load(self, batch_id: str) -> Callable[[TaskClient], object]:
        return lambda client: client.batches.insert(
            ({"n": n} for n in range(self.members)), batch_id=batch_id, action="log", due_at=self.due_at,
            over=timedelta(seconds=self.over), total=self.members if self.over else None, then={"action": "log"},
            retry_policy=self.policy, limit_key=self.key,
        )  # fmt: skip


class BatchMachine(BaseMachine):
    """The rules for batches. A batch is loaded by one call, and again by the same."""

    of = "batches"
    ids = ("a", "b/c")
    oracle: ClassVar[type[Oracle]] = BatchOracle

    def __init__(self) -> None:
        super().__init__()
        self._loaded: dict[str, _Loaded] = {}
        self._earliest: dict[str, float] = {}  # the times to which batches may have been rescheduled

    @property
    def _oracle(self) -> BatchOracle:
        oracle = self.model.oracle
        assert isinstance(oracle, BatchOracle)
        return oracle

    @step(
        batch_id=IDS,
        scripts=scripts,
        seconds=(30.0, 0.0, 90.0, 400.0),
        over=(0, 0, 20, 200),
        policy=POLICIES,
        plan=plans,
        client=clients,
    )
    def load(
        self, batch_id: str, scripts: tuple[Any, ...], seconds: float, over: int, policy: Any, plan: Plan, client: int
    ) -> None:
        """Loads a batch; one that was begun before, once more."""
        self._load(batch_id, scripts, seconds, over, policy, plan, client)

    def _load(
        self,
        batch_id: str,
        scripts: tuple[Any, ...],
        seconds: float,
        over: int,
        policy: Any,
        plan: Plan,
        client: int,
        key: str | None = None,
    ) -> None:
        if batch_id not in self._loaded:
            now = self.model.simulation.instant
            due_at = (now + timedelta(seconds=seconds)).replace(microsecond=0)
            self._loaded[batch_id] = _Loaded(len(scripts), due_at, over, policy, key)
            maximum = (policy or {}).get("maximumRetryAttempts", 3) + 1
            not_before = min(self._oracle.seconds(due_at), self._earliest.get(batch_id, math.inf))
            self._oracle.begin_batch(batch_id, len(scripts), maximum=maximum, not_before=not_before)
            for task, script in zip(self._oracle.members[batch_id], scripts, strict=True):
                task.script = script
        self._send(Request("load"), self._loaded[batch_id].load(batch_id), plan, client)

    @step(batch_id=IDS, number=st.integers(0, 6), plan=plans)
    def cancel_member(self, batch_id: str, number: int, plan: Plan) -> None:
        self._send(Request("cancel"), lambda c: c.cancel(member_id(batch_id, number)), plan)

    @step(batch_id=IDS, plan=plans)
    def cancel_batch(self, batch_id: str, plan: Plan) -> None:
        self._send(Request("cancel batch"), lambda c: c.batches.cancel(batch_id), plan)

    @step(batch_id=IDS, seconds=(0.0, 30.0, 90.0, 400.0), plan=plans)
    def reschedule_batch(self, batch_id: str, seconds: float, plan: Plan) -> None:
        at = (self.model.simulation.instant + timedelta(seconds=seconds)).replace(microsecond=0)
        seconds = self._oracle.seconds(at)
        self._earliest[batch_id] = min(seconds, self._earliest.get(batch_id, math.inf))
        for task in self._oracle.members.get(batch_id, ()):
            task.not_before = min(task.not_before, seconds)
        self._send(Request("reschedule batch"), lambda c: c.batches.reschedule(batch_id, due_at=at), plan)

    @step(batch_id=IDS, plan=plans)
    def redrive_batch(self, batch_id: str, plan: Plan) -> None:
        self._send(Request("redrive batch"), lambda c: c.batches.redrive(batch_id), plan)

    def delete(self, **_: Any) -> None:
        """Nothing is deleted by hand here."""

    def _complete(self) -> None:
        """Loads what was not loaded to its end; then each member must end."""
        stop_faults(self.model)
        for batch_id, loaded in self._loaded.items():
            row = self.model.table.get(batch_id)
            if (batch := None if row is None else Batch.of(row)) is not None and batch.members is not None:
                continue  # it may have another time than that with which it was begun
            self._send(Request("load"), loaded.load(batch_id), QUIET)
            self.model.wait_until_idle()
        complete_rows(self.model)
        for batch_id in self._loaded:
            self._oracle.check_members(batch_id)


KEYS = ("one:a", "one:a", "two:a", "rate:a", "both:a", "one:b")


class KeyedBatchMachine(BatchMachine):
    """The same for batches with limit keys: of two batches, and of members that are attempted again, the same ones."""

    of = "batches with keys"
    ids = ("a", "b/c", "d")
    key_limits = LIMITS

    @step(
        batch_id=IDS,
        scripts=scripts,
        seconds=(30.0, 0.0, 90.0, 400.0),
        over=(0, 0, 20, 200),
        policy=POLICIES,
        plan=plans,
        client=clients,
        key=KEYS,
    )
    def load(
        self,
        batch_id: str,
        scripts: tuple[Any, ...],
        seconds: float,
        over: int,
        policy: Any,
        plan: Plan,
        client: int,
        key: str | None = "one:a",
    ) -> None:
        self._load(batch_id, scripts, seconds, over, policy, plan, client, key)
