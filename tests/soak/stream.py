"""The stream's side of a soak: gives the scheduler what the table's stream shows, late, and more than once."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.sandbox.journal import Tail
from tests.sandbox.process import Outcome
from tests.sandbox.stream import Record, sequence
from tests.soak.rig import Rig

BATCH = 100


class Deliveries:
    """Records in order; those of a batch that failed come again, and so do all of it now and then."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._stream = rig.stream
        self._unstreamed = Tail(rig.here.unstreamed)
        self._waiting: list[Record] = []
        self._supplied = 0

    def next(self) -> Sequence[Record]:
        """The batch to deliver; empty if there is nothing."""
        self._waiting += self._stream.new() + self._left_out()
        return self._waiting[:BATCH]

    def delivered(self, batch: Sequence[Record], outcome: Outcome, *, repeat: bool) -> None:
        """Takes out what has been dealt with."""
        if outcome.what != "returned" or repeat:
            return
        failed = {failure["itemIdentifier"] for failure in outcome.value["batchItemFailures"]}
        first = next((n for n, record in enumerate(batch) if sequence(record) in failed), len(batch))
        del self._waiting[:first]

    def _left_out(self) -> list[Record]:
        """The emulator's stream leaves out what PartiQL has written; a real one shows it."""
        ids = list(dict.fromkeys(json.loads(line) for line in self._unstreamed.new()))
        records: list[Record] = []
        for item in self._rig.items(ids):
            if item.get("status") == {"S": "scheduled"}:
                self._supplied += 1
                image = {"NewImage": item, "SequenceNumber": f"partiql-{self._supplied}"}
                records.append({"eventName": "INSERT", "dynamodb": image})
        return records
