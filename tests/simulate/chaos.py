"""The scenarios by which a benchmark of job queues on PostgreSQL compares them under chaos, by its names and its ends.

They are those of hardbyte/postgresql-job-queue-benchmarking, ``chaos.py``: enqueue jobs, do something bad, wait until
all have completed; say how many were lost, how many came twice, and how long it took. Its processes become invocations,
its PostgreSQL the table. Its ``priority_starvation`` has no counterpart: tasks have no priorities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proof.replay import refusal_of
from tests.model.completion import complete_all
from tests.model.faulty_store import LOSE, REFUSE, Request
from tests.model.installation import Installation, Tick
from tests.model.standins import inside
from tests.model.tables import in_memory

from dynatick.domain.buckets import instant_of, minute_of

WAITED = 60  # ticks, after which a task that has not completed is lost


@dataclass(frozen=True, kw_only=True)
class Survived:
    """What came of a scenario. ``seconds``: from the first blow until all had completed."""

    scenario: str
    theirs: str  # its name in the benchmark
    blows: str
    tasks: int
    completed: int
    repeated: int  # executed to their end more than once
    begun: int  # attempts
    seconds: float
    problems: Sequence[str]

    @property
    def lost(self) -> int:
        return self.tasks - self.completed


class Chaos:
    """An installation with tasks that are due, of ten threads, ticking each minute."""

    def __init__(self, tasks: int, *, script: tuple[str, ...] = ("slow",), threads: int = 10, workers: int = 0) -> None:
        store, put, _ = in_memory()
        self.model = Installation(store, put)
        self.model.threads = threads
        self.model.reconfigure(workers=workers)
        self.simulation, self.oracle = self.model.simulation, self.model.oracle
        self.tasks, self.script = tasks, script
        self.struck_at: float | None = None

    def enqueue(self) -> None:
        """The first tick makes the installation known; then the tasks come in, and are due at the next."""
        self.tick()
        self.wait(5)
        due_at = self.simulation.instant
        request = Request("insert_many")
        for n in range(self.tasks):
            task = self.oracle.expect(f"job-{n:03d}", script=self.script)
            request.tasks[task.task_id] = task
        rows = [
            {"taskId": name, "dueAt": due_at.isoformat(), "action": "log", "expected": task.number}
            for name, task in request.tasks.items()
        ]
        self.model.send_request(request, lambda c: list(c.insert_lazily(rows)))
        self.wait(5)

    def tick(self, events: int = 1) -> None:
        """The next tick, which comes."""
        self.model.ticks([Tick(events=events)])

    def wait(self, seconds: float) -> None:
        self.model.pass_time(seconds)

    def strike(self) -> None:
        """From now on the time counts."""
        self.struck_at = self.simulation.now if self.struck_at is None else self.struck_at

    def kill(self) -> bool:
        """Kills the process that runs tasks, or else one that works at all. Returns whether there was one."""
        self.strike()
        at_work = {one.process for one in self.oracle.executions.values() if one.is_running}
        processors = [actor for actor in self.model.actors if actor.kind == "processor" and not actor.finished]
        victim = next((actor for actor in processors if actor in at_work), None) or next(iter(processors), None)
        if victim is not None:
            victim.kill()
        return victim is not None

    @property
    def completed(self) -> int:
        rows = (self.model.table.get(f"job-{n:03d}") for n in range(self.tasks))
        return sum(row is not None and row.get("outcome") == "completed" for row in rows)


def _crash_recovery(chaos: Chaos) -> str:
    chaos.tick()
    chaos.wait(2)
    assert chaos.kill()
    return "the process is killed with all tasks running"


def _table_restart(chaos: Chaos) -> str:
    chaos.tick()
    chaos.wait(2)
    chaos.strike()
    chaos.model.store.always = REFUSE
    chaos.wait(30)
    chaos.model.store.always = None
    return "the table answers nothing for 30 s"


def _repeated_kills(chaos: Chaos) -> str:
    kills = 0
    while kills < 3:
        chaos.tick()
        chaos.wait(5)
        kills += chaos.kill()
    return f"{kills} processes are killed, each 5 s after its tick"


def _connections_killed(chaos: Chaos) -> str:
    """What was asked for takes effect, and nobody gets an answer."""
    chaos.tick()
    chaos.wait(14)
    chaos.strike()
    chaos.model.store.always = LOSE
    chaos.wait(3)
    chaos.model.store.always = None
    return "the answers of all calls are lost for 3 s, in which the tasks end"


def _leader_failover(chaos: Chaos) -> str:
    chaos.tick(events=2)
    chaos.wait(2)
    assert chaos.kill()
    return "of two processes, the one that holds the shard is killed"


def _pool_exhaustion(chaos: Chaos) -> str:
    chaos.model.store.connections = 1
    chaos.strike()
    chaos.tick()
    return "50 threads share one connection, which each call takes for 50 ms"


def _retry_storm(chaos: Chaos) -> str:
    chaos.strike()
    chaos.tick()
    return "all fail at once, and are retried"


@dataclass(frozen=True)
class Scenario:
    theirs: str
    do: Callable[[Chaos], str]
    chaos: Callable[[], Chaos]
    allows_repetition: bool = True  # of what was at work when a process died


SCENARIOS: Mapping[str, Scenario] = {
    "crash recovery": Scenario("crash_recovery", _crash_recovery, lambda: Chaos(10)),
    "table restart": Scenario("postgres_restart", _table_restart, lambda: Chaos(10)),
    "repeated kills": Scenario("repeated_kills", _repeated_kills, lambda: Chaos(20)),
    "connections killed": Scenario("pg_backend_kill", _connections_killed, lambda: Chaos(10)),
    "leader failover": Scenario("leader_failover", _leader_failover, lambda: Chaos(10, workers=1)),
    "pool exhaustion": Scenario("pool_exhaustion", _pool_exhaustion, lambda: Chaos(20, threads=50), False),
    "retry storm": Scenario("retry_storm", _retry_storm, lambda: Chaos(500, script=("error", "ok"), threads=50), False),
}


def simulate_chaos(name: str) -> Survived:
    scenario = SCENARIOS[name]
    chaos = scenario.chaos()
    with inside(chaos.simulation):
        chaos.enqueue()
        blows = scenario.do(chaos)
        seconds = _until_completed(chaos)
        completed = chaos.completed
        complete_all(chaos.model)
        refused = None if chaos.oracle.violations else refusal_of(chaos.model.trace.events)
    executions = chaos.oracle.executions.values()
    ended = Counter(one.task.task_id for one in executions if one.result == "ok")
    repeated = sum(times > 1 for times in ended.values())
    problems = [*chaos.oracle.violations, *([] if refused is None else [f"the replay of its trace: {refused}"])]
    problems += [f"{chaos.tasks - completed} tasks were lost"] if completed < chaos.tasks else []
    problems += [f"{repeated} tasks were repeated"] if repeated and not scenario.allows_repetition else []
    return Survived(
        scenario=name,
        theirs=scenario.theirs,
        blows=blows,
        tasks=chaos.tasks,
        completed=completed,
        repeated=repeated,
        begun=len(executions),
        seconds=seconds,
        problems=[f"{name}: {problem}" for problem in problems],
    )


def _until_completed(chaos: Chaos) -> float:
    """Ticks until all have completed. Returns the seconds since the first blow."""
    assert chaos.struck_at is not None
    for _ in range(WAITED):
        next_tick = chaos.oracle.seconds(instant_of(minute_of(chaos.simulation.instant) + 1))
        while chaos.simulation.now < next_tick - 0.5:
            if chaos.completed == chaos.tasks:
                return chaos.simulation.now - chaos.struck_at
            chaos.wait(0.5)
        chaos.tick()
    return chaos.simulation.now - chaos.struck_at
