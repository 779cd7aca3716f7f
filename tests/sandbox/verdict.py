"""How every task ended: a pure function over the journal and what the table holds at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.sandbox.history import INSERTS, Attempt, History, Wish
from tests.sandbox.journal import CANCEL, DELETE, NO, REPLACE, RESCHEDULE, RUN, UNCLEAR, YES

from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import parse_instant
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.schedule import is_or_was_schedule
from dynatick.domain.task import Row
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import InvalidInput

_SKEW = SKEW_MARGIN.total_seconds()
_USED_UP = "its process died, or did not finish in time, at the last of"
RESULTS = ("executed", "cancelled", "deleted", "replaced", "failed", "lost", "waiting")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What there is to judge."""

    history: History
    rows: Mapping[str, Row]  # every task at the end, by id
    drained: Mapping[int, int]  # by shard: the minute through which no tick polls any more
    letters: Collection[tuple[str, str, int]]  # task, createdAt and run of each dead letter
    life: float  # seconds that an invocation lasts at most
    skew: float = 0.0  # seconds by which the clock of a process may be ahead of the journal's
    findings: Sequence[str] = ()  # what the doctor found at the end
    elsewhere: Collection[str] = ()  # tasks whose execution their target has seen, and not the journal
    restored: Collection[str] = ()  # tasks whose rows were put back to what they were before they ran
    schedules_end: bool = True  # False: a schedule may go on, and miss runs


@dataclass(kw_only=True)
class Verdict:
    """``record_results``: of the tasks whose insert was acknowledged. ``problems``: why it is red."""

    inserted: Counter[str] = field(default_factory=Counter)  # by interface
    unclear: int = 0  # inserts without a clear answer
    record_results: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)  # runs executed more than once, by why
    reclaimed: int = 0  # attempts that followed one which did not come to its end
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.problems


def judge(evidence: Evidence) -> Verdict:
    verdict = Verdict()
    history = evidence.history
    lives = history.lives
    for life, wish in lives.items():
        recorded_as = "not there"
        if wish.answer != NO:
            recorded_as, problem = _result(life, wish, evidence)
            verdict.problems += [problem] if problem else []
        if wish.answer == YES:
            verdict.inserted[wish.asked.interface] += 1
        if wish.answer == YES or recorded_as in ("lost", "waiting"):
            verdict.record_results[recorded_as] += 1
        if wish.answer == UNCLEAR:
            verdict.unclear += 1
        for run, attempts in history.runs.get(life, {}).items():
            _count(attempts, verdict)
            changes = _changes(wish, history)
            wrong = [
                *_wrong(wish, attempts, restored=life in evidence.restored),
                *_early(attempts, run, changes, evidence.skew),
            ]
            verdict.problems += [f"{life}, run {run}: {text}" for text in wrong]
    never_inserted = {*history.runs, *evidence.elsewhere} - {*lives}
    verdict.problems += [f"{life}: executed, and no client inserted it" for life in sorted(never_inserted)]
    verdict.problems += _after_the_end(evidence)
    verdict.problems += _same_keys(history)
    verdict.problems += [
        f"{task_id}: a row that no client inserted"
        for task_id, row in evidence.rows.items()
        if _life_of(row) not in lives and not is_or_was_schedule(row)
    ]
    verdict.problems += _schedules_wrong(evidence) if evidence.schedules_end else ()
    verdict.problems += [f"the doctor: {finding}" for finding in evidence.findings]
    return verdict


def _schedules_wrong(evidence: Evidence) -> Iterator[str]:
    """A schedule comes to its end, and says of no run that it was missed. Its runs are judged as tasks."""
    for task_id, row in evidence.rows.items():
        if is_or_was_schedule(row) and row.get("outcome") != "completed":
            yield f"{task_id}: a schedule that is {row.get('scheduleState')}: {row.get('error', 'not at its end')}"
        elif is_or_was_schedule(row) and row.get("missedOccurrences"):
            yield f"{task_id}: a schedule that missed {row['missedOccurrences']} runs"


# -- how a task ended --------------------------------------------------------------------------------------------------


def _result(life: str, wish: Wish, evidence: Evidence) -> tuple[str, str | None]:
    """One of RESULTS, and what is wrong with it. A task whose insert is unclear need not be there."""
    row = evidence.rows.get(wish.asked.task_id)
    runs: Mapping[int, Sequence[Attempt]] = evidence.history.runs.get(life, {})
    done = {run for run, attempts in runs.items() if any(attempt.done for attempt in attempts)}
    if life in evidence.elsewhere:
        done.add(_run_of(row or {}))
    if row is not None and _life_of(row) == life:
        return _result_of_row(life, wish, row, done, evidence)
    gone = _was_taken_out(life, wish, evidence.history)
    if gone is None and wish.answer == YES:
        return "lost", f"{life}: lost; there is no row, and no client took it out"
    return ("executed" if done else gone or "not there"), None


def _result_of_row(life: str, wish: Wish, row: Row, done: set[int], evidence: Evidence) -> tuple[str, str | None]:
    run = _run_of(row)
    match row.get("outcome"):
        case None:
            bucket = Bucket.canonical(row.get("taskDateTime"))
            if bucket is None or bucket.minute <= evidence.drained.get(bucket.shard, bucket.minute):
                return "lost", f"{life}: lost; it is open in {bucket}, where no tick polls any more"
            return "waiting", f"{life}: still {row.get('status', 'unscheduled')} in {bucket}"
        case "completed":
            if run not in done:
                return "lost", f"{life}: lost; run {run} is recorded as completed, and was never executed"
            if wish.asked.fails:
                return "executed", f"{life}: completed, although it must fail"
            return "executed", None
        case "failed":
            if (wish.asked.task_id, str(row.get("createdAt")), run) not in evidence.letters:
                return "failed", f"{life}: failed without a dead letter"
            if not wish.asked.fails and not _used_up(row):
                return "failed", f"{life}: failed, although it can't: {row.get('error')}"
            return "failed", None
        case "cancelled":
            executed = life in evidence.elsewhere or any(
                attempt.done and attempt.cut is None for attempt in evidence.history.attempts(life, run)
            )
            return "cancelled", f"{life}: cancelled, and run {run} was executed" if executed else None
        case other:
            return "lost", f"{life}: an outcome that is none: {other!r}"


def _was_taken_out(life: str, wish: Wish, history: History) -> str | None:
    """Whether a client has, or may have, deleted or replaced it."""
    for other in history.of_task[wish.asked.task_id]:
        asked = other.asked
        if other.answer == NO:
            continue
        if asked.what == DELETE and asked.life == life:
            return "deleted"
        if asked.what == REPLACE and asked.life != life and asked.at >= wish.asked.at:
            return "replaced"
    return None


def _used_up(row: Row) -> bool:
    """Each attempt that its policy allows was cut off by the end of a process."""
    maximum = RetryPolicy.from_row(row.get("retryPolicy")).maximum_attempts
    return str(row.get("error", "")).startswith(_USED_UP) and int(str(row.get("attempt", 0))) >= maximum


def _life_of(row: Row) -> str:
    payload = row.get("payload")
    return str(payload.get("life", row["taskId"])) if isinstance(payload, Mapping) else str(row["taskId"])


def _run_of(row: Row) -> int:
    return int(str(row.get("run", 1)))


# -- what the attempts of a run must be --------------------------------------------------------------------------------


def _count(attempts: Sequence[Attempt], verdict: Verdict) -> None:
    finished = [attempt for attempt in attempts if attempt.done]
    if len(finished) > 1:
        whys = {attempt.cut or "for no reason" for attempt in finished[:-1]}
        verdict.repeated[" and ".join(sorted(whys))] += 1
    verdict.reclaimed += sum(before.ended is None or before.done for before, _ in pairwise(attempts))


def _wrong(wish: Wish, attempts: Sequence[Attempt], *, restored: bool) -> Iterator[str]:
    for before, after in () if restored else pairwise(attempts):
        number = before.began.attempt
        if after.began.attempt <= number:
            yield f"attempt {after.began.attempt} was made after attempt {number}"
        if before.ended_position is not None and before.ended_position > after.position:
            yield f"attempt {after.began.attempt} began while attempt {number} was at work"
        if before.done and before.recorded:
            yield f"executed again, although attempt {number} is recorded as done"
        elif before.done and before.cut is None:
            yield f"executed again, and nothing came between attempt {number} and its record"
        elif before.ended is None and not before.died:
            yield f"executed again, while the process of attempt {number} lived"
    if len(keys := {attempt.began.key for attempt in attempts}) > 1:
        yield f"executed with different idempotency keys: {', '.join(sorted(keys))}"
    if wish.answer == NO:
        yield "executed, although its insert was refused"


def _changes(wish: Wish, history: History) -> Sequence[Wish]:
    """Of a task's time, in the order in which clients have asked for them."""
    return [
        other
        for other in history.of_task[wish.asked.task_id]
        if other.asked.what in (RESCHEDULE, RUN) and other.asked.life == wish.asked.life and other.answer != NO
    ]


def _early(attempts: Sequence[Attempt], run: int, changes: Sequence[Wish], skew: float) -> Iterator[str]:
    """Not by a millisecond of its process's clock. ``changes``: of its time, which end a backoff."""
    for attempt in attempts:
        if (early := attempt.began.due_at - attempt.began.at) > skew:
            yield f"began {early:.3f} s before it was due"
    for before, after in () if changes else pairwise(attempts):
        if before.not_before is not None and (early := before.not_before - after.began.at) > skew:
            yield f"attempt {after.began.attempt} began {early:.3f} s before its backoff was over"
    last = changes[-1] if changes else None
    if last is None or last.answered is None or last.position is None or (last.answered.run or run) != run:
        return
    for attempt in attempts:
        if attempt.position > last.position and (early := (last.answered.due_at or 0) - attempt.began.at) > skew:
            yield f"attempt {attempt.began.attempt} began {early:.3f} s before the time that it was given"


def _same_keys(history: History) -> Iterator[str]:
    """Another run, and another task under the same id, have another key."""
    owners: dict[str, tuple[str, int]] = {}
    for owner in ((life, run) for life, runs in history.runs.items() for run in runs):
        for key in {attempt.began.key for attempt in history.attempts(*owner)}:
            if (other := owners.setdefault(key, owner)) != owner:
                yield f"{owner[0]}, run {owner[1]} has the idempotency key {key} of {other[0]}, run {other[1]}"


# -- what must not happen after an end ---------------------------------------------------------------------------------


def _after_the_end(evidence: Evidence) -> Iterator[str]:
    history = evidence.history
    for wish in history.wishes.values():
        asked, answered = wish.asked, wish.answered
        if answered is None or answered.answer != YES or wish.position is None:
            continue
        if asked.what == CANCEL:
            for attempt in history.attempts(asked.life, answered.run or 1):
                if attempt.position > wish.position:
                    yield f"{asked.life}: executed (attempt {attempt.began.attempt}) after it had been cancelled"
                elif (attempt.ended_position or 0) > wish.position:  # only what waits can be called off
                    yield f"{asked.life}: cancelled while attempt {attempt.began.attempt} was at work"
        elif asked.what == DELETE:
            yield from _still_there(asked.life, asked.task_id, "deleted", answered.at, evidence)
        elif asked.what == REPLACE:
            for life in _before(wish, history):
                yield from _still_there(life, asked.task_id, "replaced", answered.at, evidence)
    for task_id, row in evidence.rows.items():
        if row.get("outcome") == "cancelled":
            yield from _after_cancellation(task_id, row, history)


def _before(replaced: Wish, history: History) -> set[str]:
    """The tasks under the same id that were in when one was asked to take their place."""
    return {
        wish.asked.life
        for wish in history.of_task[replaced.asked.task_id]
        if wish.asked.what in INSERTS and wish is not replaced and wish.asked.at <= replaced.asked.at
    }


def _still_there(life: str, task_id: str, how: str, at: float, evidence: Evidence) -> Iterator[str]:
    """Anyone who had claimed it before may still execute it; but no client after an invocation's life."""
    if (row := evidence.rows.get(task_id)) is not None and _life_of(row) == life:
        yield f"{life}: there again, after it had been {how}"
    for attempts in evidence.history.runs.get(life, {}).values():
        if any(attempt.began.at > at + evidence.life + _SKEW for attempt in attempts):
            yield f"{life}: executed long after it had been {how}"


def _after_cancellation(task_id: str, row: Row, history: History) -> Iterator[str]:
    """By the times that the table and the journal show: also where the answer was lost."""
    try:
        cancelled = parse_instant(row.get("finishedAt"), "finishedAt").timestamp()
    except InvalidInput:
        yield f"{task_id}: cancelled, and it is not known when"
        return
    for attempt in history.attempts(_life_of(row), _run_of(row)):
        if attempt.began.at > cancelled + _SKEW:
            yield f"{_life_of(row)}: executed {attempt.began.at - cancelled:.1f} s after it was cancelled"
