"""The checker of limits by key refuses false journals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.sandbox.history import History
from tests.sandbox.journal import INSERT, KILLED, OK, Began, Died, Ended, Line, Requested, Responded
from tests.sandbox.limits import Stay, broken
from tests.sandbox.verdict import Evidence, judge

from dynatick.domain.limit_keys import parse_limits

LIMITS = parse_limits(["one=1", "two=2", "rate=6/m", "both=2:60/m"])


def of(key: str, *times: tuple[float, float]) -> list[Stay]:
    return [Stay(task_id=f"t{n}", key=key, begin=begin, end=end) for n, (begin, end) in enumerate(times)]


def starts(key: str, *times: float) -> list[Stay]:
    return of(key, *((at, at) for at in times))


@pytest.mark.parametrize(
    "stays",
    [
        of("one:a", (0, 5), (5, 9), (9.5, 12)),
        of("one:a", (0, 5)) + of("one:b", (1, 4)) + of("free:a", (0, 9), (1, 9), (2, 9)),
        of("two:a", (0, 5), (1, 9), (5, 8)),
        starts("rate:a", 0, 10, 20.5, 31, 41),
        of("both:a", (0, 3), (1, 5), (3, 7), (5, 6)),
    ],
)
def test_a_journal_within_the_limits_is_taken(stays: Sequence[Stay]) -> None:
    assert list(broken(stays, LIMITS)) == []


@pytest.mark.parametrize(
    ("stays", "wrong"),
    [
        (of("one:a", (0, 5), (4.9, 9)), "one:a: 2 at once at 4.900, and 1 may be: t0, t1"),
        (of("one:a", (4, 9), (0, 120)), "one:a: 2 at once at 4.000, and 1 may be: t0, t1"),
        (of("two:a", (0, 9), (1, 9), (2, 3)), "two:a: 3 at once at 2.000, and 2 may be: t0, t1, t2"),
        (starts("rate:a", 0, 9.9), "rate:a: t1 began 0.100 s before its rate allows it, at 9.900"),
        (starts("rate:a", 0, 40, 49), "rate:a: t2 began 1.000 s before its rate allows it, at 49.000"),
        (of("both:a", (0, 9), (1, 9), (2, 9)), "both:a: 3 at once at 2.000, and 2 may be: t0, t1, t2"),
        (of("both:a", (0, 0.1), (0.5, 1)), "both:a: t1 began 0.500 s before its rate allows it, at 0.500"),
    ],
)
def test_a_journal_that_breaks_a_limit_is_refused(stays: Sequence[Stay], wrong: str) -> None:
    assert list(broken(stays, LIMITS)) == [wrong]


def test_starts_that_are_each_a_little_early_add_up() -> None:
    early = [n * 9.9 for n in range(8)]
    found = list(broken(starts("rate:a", *early), LIMITS, skew=0.25))
    assert len(found) == 5  # the first three are within the skew
    assert "t7 began 0.700 s" in found[-1]


def test_clocks_may_differ() -> None:
    assert list(broken(of("one:a", (0, 5), (3.5, 9)), LIMITS, skew=2)) == []
    assert len(list(broken(of("one:a", (0, 5), (2.5, 9)), LIMITS, skew=2))) == 1


def attempt(task_id: str, pid: int, at: float, until: float, ended: float | None = None) -> list[Line]:
    who = {"pid": pid, "task_id": task_id, "incarnation": task_id, "run": 1, "attempt": 1, "key": task_id}
    begun: list[Line] = [Began(**who, at=at, due_at=0.0, until=until, limit_key="one:a")]
    return begun if ended is None else [*begun, Ended(**who, at=ended, done=True)]


def over_limits(*lines: Line) -> list[str]:
    """What the verdict on a journal of tasks of one key says of its limit."""
    ids = {line.task_id for line in lines if isinstance(line, Began)}
    asked = [Requested(request_id=one, operation=INSERT, interface="client", task_id=one, incarnation=one, at=0.0)
             for one in sorted(ids)]  # fmt: skip
    evidence = Evidence(
        history=History().take([*asked, *(Responded(request_id=one, status=OK, at=0.0) for one in ids), *lines]),
        rows={one: {"taskId": one, "outcome": "completed"} for one in ids},
        drained={},
        dead_letters=(),
        timeout=120.0,
        limits=LIMITS,
    )
    verdict = judge(evidence)
    assert sum(verdict.limited.values()) == verdict.limited["one"] == len(ids)
    return [problem for problem in verdict.problems if "at once" in problem]


def test_a_verdict_judges_the_limits() -> None:
    first = attempt("a", 1, 10.0, 100.0, ended=20.0)
    assert over_limits(*first, *attempt("b", 2, 20.0, 100.0, ended=30.0)) == []
    assert over_limits(*first, *attempt("b", 2, 19.0, 100.0, ended=30.0)) == [
        "one:a: 2 at once at 19.000, and 1 may be: a, b"
    ]


def test_an_attempt_whose_process_was_killed_counts_until_the_hard_end_of_that() -> None:
    killed: list[Line] = [*attempt("a", 1, 10.0, 100.0), Died(pid=1, role="processor", why=KILLED)]
    assert over_limits(*killed, *attempt("b", 2, 100.0, 200.0, ended=101.0)) == []
    assert over_limits(*killed, *attempt("b", 2, 99.0, 200.0, ended=101.0)) == [
        "one:a: 2 at once at 99.000, and 1 may be: a, b"
    ]
