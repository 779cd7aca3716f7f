"""The oracle notices each mutation of ``tests/mutations.py`` by a counterexample that is kept for it, but for those
that no sequence shows (``Mutation.unreachable``) and those that only tests of one part notice."""

from __future__ import annotations

import pytest
from proof.replay import refusal_of
from tests.model.counterexamples import BY_MUTATION
from tests.model.mutated import mutated
from tests.model.rate_machine import RateMachine
from tests.model.schedule_machine import ScheduleMachine
from tests.model.situations import SITUATIONS
from tests.model.steps import kind_of, replay, replayed
from tests.model.tables import in_memory, machine_on
from tests.model.task_machine import TaskMachine
from tests.mutation import Mutation
from tests.mutations import MUTATIONS, OF_RATES, OF_SCHEDULES, RECURRING, RULES, TEMPLATE, WAKE_UPS

SEARCHED = (RULES, TEMPLATE, WAKE_UPS, RECURRING)
"""Tests of rules as a whole. Mutations that only tests of one part notice need no counterexample."""
ACCEPTED = {
    "every pass sets a new checkpoint": "S moves ever later; each single step is right",
    "a first attempt is left to its lease when it has ended": "a task is executed once more than need be",
    "a forged token is taken": "a trace does not have the tokens that clients give",
    "what has failed by its token is completed": "no rule forbids it",
    "a retry keeps the instant that it had": "no rule says how long a backoff lasts",
}
"""The traces without these are accepted by the rules, and why. Schedules have no rules of their own there."""
MACHINES = {OF_SCHEDULES: ScheduleMachine, OF_RATES: RateMachine}
REACHED = [mutation for mutation in MUTATIONS if mutation.what in BY_MUTATION]


@pytest.mark.parametrize("mutation", REACHED, ids=lambda mutation: f"{mutation.rule}: {mutation.what}")
def test_a_mutation_is_noticed_by_its_counterexample(mutation: Mutation) -> None:
    kept = BY_MUTATION[mutation.what]
    machine = machine_on(in_memory, MACHINES.get(mutation.rule, TaskMachine))
    assert replay(machine, kept.steps) == ""
    with mutated(mutation):
        made = replayed(machine, kept.steps)
    violations = made.violations
    assert kind_of(kept.violation) in map(kind_of, violations.splitlines()), (
        f"its counterexample shows it no longer, but {violations!r}. Keep another one: "
        f"python -m tests.model.search {mutation.rule} {mutation.what!r}"
    )
    refused = refusal_of(made.model.trace.events)
    if mutation.rule == OF_SCHEDULES or mutation.what in ACCEPTED:
        assert refused is None or mutation.what == "a second process runs an occurrence too"
    else:
        assert refused is not None


def test_every_mutation_of_a_rule_has_a_counterexample_or_says_why_not() -> None:
    searched = {mutation.what for mutation in MUTATIONS if any(tests in mutation.tests for tests in SEARCHED)}
    unreachable = {mutation.what for mutation in MUTATIONS if mutation.unreachable}
    assert searched <= BY_MUTATION.keys() | unreachable
    assert not BY_MUTATION.keys() & unreachable
    assert len(REACHED) == len(BY_MUTATION)
    assert {mutation.rule for mutation in REACHED} == {OF_RATES, OF_SCHEDULES, *range(1, 20)}


@pytest.mark.parametrize(
    "name", ["old tasks are restored beside newer cursors", "the index lags beyond what is allowed for"]
)
def test_only_reconcile_finds_what_no_tick_polls_any_more(name: str) -> None:
    (mutation,) = [m for m in MUTATIONS if m.what == "reconcile passes by what was drained without"]
    with mutated(mutation):
        assert "not even reconcile has found it" in replay(machine_on(in_memory), SITUATIONS[name].steps)
