"""The batches of a soak: what an inserter loads and changes, and what is left of one that was killed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tests.sandbox.handlers import ACTION
from tests.soak.tasks import LENIENT, RandomTask, draw_key

from dynatick import TaskClient
from dynatick.domain.batches import then_id
from dynatick.domain.packs import member_id
from dynatick.errors import TransitionRefused

FURTHEST = 90  # seconds ahead
CUT_OFF = 0.25  # of the loaders, between the packs and the seal


@dataclass(frozen=True, kw_only=True)
class RandomBatch:
    """A batch of one pack."""

    batch_id: str
    payloads: Sequence[Mapping[str, object]]
    delay: timedelta
    keyed: Mapping[str, object]  # the limit key of all, if they have one
    is_cut_off: bool  # its loader is killed before it seals it

    @property
    def members(self) -> list[RandomTask]:
        numbered = [(member_id(self.batch_id, n), payload) for n, payload in enumerate(self.payloads)]
        times = {"delaySeconds": self.delay.total_seconds()}
        return [
            RandomTask(task_id=i, incarnation=i, row={"taskId": i, "payload": plan, **self.keyed}, times=times)
            for i, plan in numbered
        ]

    @property
    def then(self) -> RandomTask:
        task_id = then_id(self.batch_id)
        return RandomTask(task_id=task_id, incarnation=task_id, row={"taskId": task_id})

    def load(self, client: TaskClient) -> None:
        """In parts, as a client does that may be killed between them."""
        client.batches.insert(
            None,
            batch_id=self.batch_id,
            action=ACTION,
            delay=self.delay,
            total=len(self.payloads),
            then={"action": ACTION},
            retry_policy=LENIENT,
            limit_key=self.keyed.get("limitKey"),  # type: ignore[arg-type]
        )
        client.batches.load_pack(self.batch_id, 0, self.payloads)
        if self.is_cut_off:
            os.kill(os.getpid(), signal.SIGKILL)
        client.batches.seal(self.batch_id)


def draw_batch(dice: random.Random, batch_id: str) -> RandomBatch:
    return RandomBatch(
        batch_id=batch_id,
        payloads=[_plan(dice) for _ in range(dice.choice([1, 5, 20, 40]))],
        delay=timedelta(seconds=dice.randint(0, FURTHEST)),
        keyed=draw_key(dice),
        is_cut_off=dice.random() < CUT_OFF,
    )


def _plan(dice: random.Random) -> Mapping[str, object]:
    """Draws what a member does. Its policy is that of all: none is made to use its attempts up."""
    chance = dice.random()
    if chance < 0.88:
        return {"seconds": round(dice.uniform(0, 0.05), 3)}
    return {"failures": dice.randint(1, 2)} if chance < 0.96 else {"permanent": True}


def end_unsealed(
    client: TaskClient, prefix: str, should_seal: Callable[[], bool], note_cancel: Callable[[str], None]
) -> tuple[int, int]:
    """Seals or cancels each batch whose loader was killed, as a user would. One that can't be sealed, as some of its
    members are not in, is cancelled. Returns how many it has sealed and cancelled. Raises StoreError."""
    sealed, cancelled, token = 0, 0, None
    while True:
        page = client.batches.list(page_token=token)
        for batch in page.batches:
            if batch.members is not None or batch.finished_at is not None or not batch.batch_id.startswith(prefix):
                continue
            if should_seal():
                try:
                    client.batches.seal(batch.batch_id)
                except TransitionRefused:
                    pass
                else:
                    sealed += 1
                    continue
            client.batches.cancel(batch.batch_id)
            note_cancel(batch.batch_id)
            cancelled += 1
        if (token := page.next_page_token) is None:
            return sealed, cancelled
