"""The figures of a fault: how many tasks were inserted and how each ended, counted in journal and table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Set
from dataclasses import asdict, dataclass, field

from tests.faults.world import World
from tests.sandbox.journal import Ended

from dynatick.domain.buckets import Bucket


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Numbers of tasks. Of those that were inserted, each was executed, ended otherwise, waits, or is lost."""

    inserted: int
    executed: int = 0
    repeated: int = 0  # executed more than once in one run
    lost: int = 0
    waiting: int = 0
    otherwise: dict[str, int] = field(default_factory=dict)  # failed with its reason, cancelled, deleted by hand

    def __add__(self, other: Figures) -> Figures:
        mine, theirs = asdict(self), asdict(other)
        ended = Counter(mine.pop("otherwise")) + Counter(theirs.pop("otherwise"))
        return Figures(**{name: mine[name] + theirs[name] for name in mine}, otherwise=dict(ended))


def count(world: World, *, elsewhere: frozenset[str] = frozenset(), restored: frozenset[str] = frozenset()) -> Figures:
    """Counts a world. ``elsewhere``: tasks whose execution something else than the ledger has seen. ``restored``: tasks
    whose rows were put back to what they were before they ran.

    Fails if a task was executed once more without need, or although it was cancelled.
    """
    rows, cursors = world.rows(), world.cursors()
    executions = world.ledger.done()
    executed = {execution.task_id for execution in executions} | elsewhere
    otherwise: Counter[str] = Counter()
    done, lost, waiting = 0, 0, 0
    for task_id in world.inserted:
        row = rows.get(task_id)
        if row is None and task_id not in world.deleted:
            lost += 1  # nothing says how it ended
        elif row is not None and "outcome" not in row:
            bucket = Bucket.canonical(row.get("taskDateTime"))
            seen = bucket is not None and bucket.shard < len(cursors) and (
                bucket.minute > cursors[bucket.shard].drained_through
            )  # fmt: skip
            waiting, lost = waiting + seen, lost + (not seen)
        elif task_id in executed:
            assert row is None or row["outcome"] != "cancelled", f"{task_id} was cancelled, and executed"
            done += 1
        elif row is None:
            otherwise["deleted by hand"] += 1
        elif row["outcome"] == "completed":
            lost += 1  # said to be done, and was not
        else:
            otherwise[str(row["outcome"])] += 1
    assert executed <= world.inserted, f"never inserted: {sorted(executed - world.inserted)[:5]}"
    return Figures(
        inserted=len(world.inserted),
        executed=done,
        repeated=len(repeated(executions, world.killed, world.put_over, restored)),
        lost=lost,
        waiting=waiting,
        otherwise=dict(otherwise),
    )


def repeated(
    executions: list[Ended],
    killed: set[int],
    put_over: Set[str] = frozenset(),
    restored: Set[str] = frozenset(),
) -> set[str]:
    """The tasks that were executed more than once in one run.

    Fails unless all executions had the same idempotency key and, but for a task of ``restored``, the process of each
    but the last was killed before it could record it, and each had a higher attempt number. ``put_over``: ids under
    which one task has replaced another.
    """
    runs: defaultdict[tuple[str, int], list[Ended]] = defaultdict(list)
    for execution in executions:
        runs[execution.task_id, execution.run].append(execution)
    replaced: defaultdict[str, list[Ended]] = defaultdict(list)
    for task_id, run in [one for one in runs if one[0] in put_over]:  # several tasks that had the same id
        for execution in runs.pop((task_id, run)):
            replaced[execution.key].append(execution)
    again = [made for made in (*runs.values(), *replaced.values()) if len(made) > 1]
    for made in again:
        task_id = made[0].task_id
        assert len({execution.key for execution in made}) == 1, made
        if task_id in restored:
            continue
        assert all(execution.pid in killed for execution in made[:-1]), f"{task_id} was executed again without need"
        numbers = [execution.attempt for execution in made]
        assert numbers == sorted(set(numbers)), f"{task_id}: attempts {numbers}"
    return {made[0].task_id for made in again}
