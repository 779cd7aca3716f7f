"""The machine finds out if a rule of the protocol is taken out of the product: each of ``tests/mutations.py``, but for
those that no sequence shows (``OUT_OF_REACH``), which only that file's own tests hold.

For each of them a sequence is kept that shows it (``kept_breaks.py``). If it shows it no longer, say because the engine
makes its calls in another order now, one like it is looked for, then any other; what is found is printed among the
warnings, to be kept instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.model.breaking import MUTATIONS, Mutation, broken
from tests.model.installation import INDEX_LAG, Tick
from tests.model.kept_breaks import KEPT, begin, known, put, tick
from tests.model.kept_schedules import KEPT_BREAKS
from tests.model.machine import Machine
from tests.model.schedule_machine import ScheduleMachine
from tests.model.seam import Fault
from tests.model.search import kind_of, search, smaller, text_of
from tests.model.steps import Found, Step, changed, play
from tests.model.surroundings import Surroundings
from tests.model.tables import in_memory, machine_on
from tests.mutations import (
    APP,
    CLAIMS,
    DRAIN,
    FAN_OUT,
    IDLE_SHARDS,
    LIFECYCLE,
    OF_SCHEDULES,
    RECORD,
    RECOVERY,
    SCHEDULES,
    STORE,
    TASK_POOL,
    WATERMARK,
    WINDOW,
    WORKERS,
)

EXAMPLES = 500
CALLS = range(1, 13)
SEEDS = range(1, 41)

COSTS_PUNCTUALITY = "costs punctuality only: the tick runs what no wake-up runs"
COSTS_MESSAGES = "costs messages only: a wake-up that comes again is harmless"
OUT_OF_REACH = {
    (8, "our own rows pass the stream's filter"): "costs invocations only: the scheduler leaves our own rows alone",
    (
        OF_SCHEDULES,
        "S does not wait for another tick's occurrences",
    ): "no sequence was found: an index that lags twice, "
    "and a process that is frozen in between, at the right moments; its own test shows it",
    (
        OF_SCHEDULES,
        "an occurrence that a dead tick made counts as late",
    ): "no sequence was found: a tick that can't move a schedule on tries again within its pass; its own test shows it",
    (10, "a lease is over at once, by whichever clock"): "no sequence was found since recoveries reclaim; its own test "
    "shows it",
    (17, "a wake-up leaves a moved task where it is"): "the stream shows the move, and the scheduler settles it too; "
    "its own test shows it",
    (
        17,
        "a wake-up leaves a failure that waits for its letter where it is",
    ): "no sequence was looked for: a queue that "
    "refuses, a wake-up, and a tick that closes the bucket just then must meet; its own test shows it",
    (19, "a tick that finds its shard leased plans nothing"): COSTS_PUNCTUALITY,
    (19, "a retry gets no wake-up"): COSTS_PUNCTUALITY,
    (19, "the scheduler wakes what a processor has deferred"): COSTS_MESSAGES,
    (19, "records after a failed one send their wake-ups twice"): COSTS_MESSAGES,
    (16, "S may go back"): "no caller ever offers an older S: it is a second line of defence, for callers to come",
}
"""Rules, or parts of them, that no sequence shows to be missing, and why."""

ALL_KEPT = {**KEPT, **KEPT_BREAKS}
HELD_ALONE = (
    WATERMARK,
    RECOVERY,
    DRAIN,
    APP,
    STORE,
    CLAIMS,
    LIFECYCLE,
    RECORD,
    WINDOW,
    TASK_POOL,
    SCHEDULES,
    WORKERS,
    IDLE_SHARDS,
    FAN_OUT,
)
"""Files of tests that hold mutations for which no sequence was looked for."""
REACHED = [
    mutation
    for mutation in MUTATIONS
    if (mutation.rule, mutation.what) not in OUT_OF_REACH and mutation.tests not in HELD_ALONE
]


@pytest.mark.parametrize("mutation", REACHED, ids=lambda mutation: f"{mutation.rule}: {mutation.what}")
def test_the_machine_finds_out_that_a_rule_is_missing(mutation: Mutation) -> None:
    kept, machine = (
        ALL_KEPT[mutation.rule, mutation.what],
        ScheduleMachine if mutation.rule == OF_SCHEDULES else Machine,
    )
    assert play(machine_on(in_memory, machine), kept.steps) == ""
    with broken(mutation):
        said = play(machine_on(in_memory, machine), kept.steps)
        if kind_of(kept.says) in map(kind_of, said.splitlines()):
            return
        found = like(kept, machine) or search(in_memory, EXAMPLES, start=1, machine=machine)
        assert found is not None, f"without rule {mutation.rule} ({mutation.what}) nothing seems wrong"
        warnings.warn(
            f"the sequence that is kept for rule {mutation.rule} ({mutation.what}) does not show it any more. Keep "
            f"another one, such as:\n{text_of(smaller(found, machine=machine))}",
            stacklevel=1,
        )


def like(kept: Found, machine: type[Surroundings] = Machine) -> Found | None:
    """Almost the same sequence, which shows it: with its faults at other calls, or another lag of the index."""
    for steps in variations(kept.steps):
        said = play(machine_on(in_memory, machine), steps)
        if said:
            return Found(said.partition("\n")[0], steps)
    return None


def variations(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    has_faults = "Fault(" in repr(steps)
    has_lag = any(one.given.get("lag") for one in steps)
    for call in CALLS if has_faults else [0]:
        for start in SEEDS if has_lag else [0]:

            def other(name: str, value: Any, call: int = call, start: int = start) -> Any:
                if isinstance(value, Fault):
                    return replace(value, call=call)
                return start if name == "seed" and has_lag else value

            yield [changed(one, other) for one in steps]


def test_every_rule_is_looked_for_or_said_to_be_out_of_reach() -> None:
    looked_for = {(mutation.rule, mutation.what) for mutation in MUTATIONS if mutation.tests not in HELD_ALONE}
    assert looked_for == ALL_KEPT.keys() | OUT_OF_REACH.keys()
    assert not ALL_KEPT.keys() & OUT_OF_REACH.keys()
    assert {rule for rule, _ in ALL_KEPT} == {OF_SCHEDULES, *range(1, 20)}


@pytest.mark.parametrize(
    "steps",
    [
        [put(), tick(*[Tick()] * 6), Step("restore", ago=330.0, what="tasks")],
        [begin(lag=4 * INDEX_LAG, seed=5), put(known(60.0)), tick(*[Tick()] * 8)],
    ],
    ids=["tasks restored", "an index that lags beyond what is allowed for"],
)
def test_what_no_tick_polls_any_more_is_lost_without_reconcile_and_not_with_it(steps: Sequence[Step]) -> None:
    (mutation,) = [m for m in MUTATIONS if m.what == "reconcile passes by what was drained without"]
    assert play(machine_on(in_memory), steps) == ""
    with broken(mutation):
        assert "a: not even reconcile has found it" in play(machine_on(in_memory), steps)


def test_if_the_engine_makes_its_calls_in_another_order_one_like_it_is_found() -> None:
    kept = KEPT[4, "checkpointAt is read before the closing write"]
    (mutation,) = [m for m in MUTATIONS if m.what == "checkpointAt is read before the closing write"]
    elsewhere = [changed(one, lambda _, value: replace(value, call=9) if isinstance(value, Fault) else value)
                 for one in kept.steps]  # fmt: skip
    with broken(mutation):
        assert play(machine_on(in_memory), elsewhere) == ""
        found = like(Found(kept.says, elsewhere))
    assert found is not None
    assert kind_of(found.says) == kind_of(kept.says)
    assert play(machine_on(in_memory), found.steps) == ""
