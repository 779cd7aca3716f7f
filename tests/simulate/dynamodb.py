"""DynamoDB with its limits, in the simulation: what a request costs, how long it takes, and when it is refused.

The product's own store talks to it, so that its batches, its tries and its waits are those of the product. The SDK's
own tries of a request that is refused as a whole are made here, as botocore makes them in its standard mode.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError
from tests.model.simulation import Process, Simulation
from tests.simulate.assumptions import Assumptions
from tests.simulate.capacity import Capacity

from dynatick.store.dynamodb import DynamoStore
from dynatick_stack.counting.database import READS, Database, Index, Table
from dynatick_stack.counting.rules import Item, Refused, Throttled
from dynatick_stack.template import table_definition

TABLE = "tasks"
INDEX = "taskDateTime-index"
SDK_TRIES = 6
MAX_SDK_WAIT = 20.0


class LimitedTable(Table):
    """A table whose writes are refused if it, or an index that they change, has no capacity left."""

    def __init__(self, definition: Mapping[str, Any], capacity: Callable[[], Capacity]) -> None:
        super().__init__(definition)
        self.capacity = capacity()
        self.of_indexes = {name: capacity() for name in self.indexes}

    def admit(self, key: str, units: int, of_indexes: Sequence[tuple[Index, Item, int]]) -> None:
        """An index that falls behind holds up the writes to its table."""
        if not self.capacity.admits_write(key):
            raise Throttled("the table has no capacity left")
        changed = [(self.of_indexes[i.name], entry[i.hash_key]["S"], more) for i, entry, more in of_indexes if more]
        if not all(capacity.admits_write(name) for capacity, name, _ in changed):
            raise Throttled("an index has no capacity left")
        self.capacity.take_write(key, units)
        for capacity, name, more in changed:
            capacity.take_write(name, more)

    def refusal_units(self, key: str) -> float:
        units = super().refusal_units(key)
        self.capacity.take_write(key, units)
        return units


class SimulatedDynamoDB:
    """A table. A request takes its time in the strand that makes it, and its CPU in the process of that strand."""

    def __init__(self, simulation: Simulation, assumptions: Assumptions, capacity: Callable[[], Capacity]) -> None:
        self.simulation, self.assumptions = simulation, assumptions
        self.table = LimitedTable({"TableName": TABLE, **table_definition(), "StreamSpecification": {}}, capacity)
        self.database = Database()
        self.database.tables[TABLE] = self.table
        self.cpu_until: dict[Process, float] = {}
        self.dice = random.Random(7)

    def call(self, operation: str, request: Mapping[str, Any], *, cpu_share: float) -> Mapping[str, Any]:
        """Carries out a request. Raises ClientError, as the SDK does when its tries are used up."""
        for n in range(SDK_TRIES):
            self._take_time(request, cpu_share)
            try:
                return self._carry_out(operation, request)
            except Throttled as error:
                if n == SDK_TRIES - 1:
                    raise _client_error(error, operation) from None
                self.simulation.sleep(min(self.dice.random() * 2**n, MAX_SDK_WAIT))
            except Refused as error:
                raise _client_error(error, operation) from None
        raise AssertionError

    def _take_time(self, request: Mapping[str, Any], cpu_share: float) -> None:
        """Takes CPU of the calling process, whose threads take turns; then waits for the response too."""
        simulation, assumptions, batch = self.simulation, self.assumptions, request.get("Statements", ())
        seconds = assumptions.statements_cpu(batch) if batch else assumptions.request_cpu
        wait = self.wait_for_cpu(seconds / cpu_share)
        simulation.sleep(wait + assumptions.request_latency(self.dice, statements=len(batch) or 1))

    def wait_for_cpu(self, seconds: float) -> float:
        """Takes CPU of the calling process. Returns how long it waits until it has had that."""
        process, now = self.simulation.my_process(), self.simulation.now
        self.cpu_until[process] = free = max(now, self.cpu_until.get(process, 0.0)) + seconds
        return free - now

    def _carry_out(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if operation not in READS:
            return self.database.call(operation, request)
        capacity, keys = self._read_from(operation, request)
        if not all(capacity.admits_read(key) for key in keys):
            raise Throttled("no capacity left for reads")
        before = self.database.counts.total.read_units
        answer = self.database.call(operation, request)
        units = self.database.counts.total.read_units - before
        for key in keys:
            capacity.take_read(key, units / len(keys))
        self.simulation.sleep(units * self.assumptions.read_unit_latency)
        return answer

    def _read_from(self, operation: str, request: Mapping[str, Any]) -> tuple[Capacity, list[str]]:
        """Returns the capacity that a request reads from, and the keys of its partitions."""
        match operation:
            case "Query":
                values = request["ExpressionAttributeValues"]
                return self.table.of_indexes[request["IndexName"]], [values.get(":bucket", values.get(":state"))["S"]]
            case "BatchGetItem":
                ((_, wanted),) = request["RequestItems"].items()
                return self.table.capacity, [self.table.key_of(key) for key in wanted["Keys"]]
            case "GetItem":
                return self.table.capacity, [self.table.key_of(request["Key"])]
        return self.table.capacity, [""]

    def forget(self, process: Process) -> None:
        """A process that has ended."""
        self.cpu_until.pop(process, None)


class SimulatedStore(DynamoStore):
    """The product's store, whose requests go to the simulated DynamoDB."""

    def __init__(self, service: SimulatedDynamoDB, *, cpu_share: float) -> None:
        super().__init__(TABLE, region="us-east-1", pause=service.simulation.sleep)
        self._service, self._cpu_share = service, cpu_share
        client: Any = SimpleNamespace(
            meta=SimpleNamespace(events=SimpleNamespace(register=lambda *_, **__: None)),
            _request_signer=None,
            _make_api_call=self._call,
        )
        self._connection.connection._client = client

    def _call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._service.call(operation, request, cpu_share=self._cpu_share)


def _client_error(error: Refused, operation: str) -> ClientError:
    response: Any = {"Error": {"Code": error.code, "Message": str(error)}}
    return ClientError(response, operation)
