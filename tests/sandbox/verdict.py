"""How every task ended: a pure function over the journal and what the table holds at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.sandbox.history import INSERTS, Attempt, History, Operation
from tests.sandbox.journal import BATCH, CANCEL, DELETE, OK, REFUSED, REPLACE, RESCHEDULE, RUN, UNKNOWN
from tests.sandbox.limits import Stay, broken

from dynatick.actions.rate_limit import EARLY, LATE
from dynatick.domain.batches import Batch, then_id
from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import parse_instant
from dynatick.domain.limit_keys import KeyLimits, class_of
from dynatick.domain.packs import member_id
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.schedule import is_or_was_schedule
from dynatick.domain.task import Row
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import InvalidInput

_SKEW = SKEW_MARGIN.total_seconds()
_USED_UP = "its process died, or did not finish in time, at the last of"
RESULTS = ("executed", "cancelled", "deleted", "replaced", "failed", "lost", "waiting")
TAKEN_OUT = {DELETE: "deleted", REPLACE: "replaced"}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence on which a verdict rests."""

    history: History
    rows: Mapping[str, Row]  # every task at the end, by id
    drained: Mapping[int, int]  # by shard: the minute through which no tick polls any more
    dead_letters: Collection[tuple[str, str, int]]  # task, createdAt and run of each
    batches: Mapping[str, Row] = field(default_factory=dict)  # the row of each, by id
    timeout: float  # seconds that an invocation lasts at most
    skew: float = 0.0  # seconds by which the clock of a process may be ahead of the journal's
    findings: Sequence[str] = ()  # what the doctor found at the end
    elsewhere: Collection[str] = ()  # tasks whose execution their target has seen, and not the journal
    restored: Collection[str] = ()  # tasks whose rows were put back to what they were before they ran
    schedules_end: bool = True  # False: a schedule may go on, and miss runs
    limits: KeyLimits = field(default_factory=dict)
    rates: KeyLimits = field(default_factory=dict)  # of the action of all tasks
    noted_late: float = 0.0  # seconds from the start of an attempt to its line in the journal, at most


@dataclass(kw_only=True)
class Verdict:
    """``results``: of the tasks whose insert was acknowledged. ``problems``: why it is red."""

    inserted: Counter[str] = field(default_factory=Counter)  # by interface
    unknown: int = 0  # inserts whose outcome the client does not know
    results: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)  # runs executed more than once, by why
    reclaimed: int = 0  # attempts that followed one which did not come to its end
    limited: Counter[str] = field(default_factory=Counter)  # attempts of tasks with limit keys, by class
    problems: list[str] = field(default_factory=list)


def judge(evidence: Evidence) -> Verdict:
    verdict, history = Verdict(), evidence.history
    inserts = history.incarnations
    for incarnation, insert in inserts.items():
        result, problem = _result(incarnation, insert, evidence)
        verdict.problems += [f"{incarnation}: {problem}"] if problem else []
        if insert.status == OK:
            verdict.inserted[insert.request.interface] += 1
        if insert.status == OK or result in ("lost", "waiting"):
            verdict.results[result] += 1
        verdict.unknown += insert.status == UNKNOWN
        for run, attempts in history.runs.get(incarnation, {}).items():
            _count(attempts, verdict)
            wrong = [*_wrong(insert, attempts, evidence), *_early(insert, run, attempts, evidence)]
            verdict.problems += [f"{incarnation}, run {run}: {text}" for text in wrong]
    verdict.problems += _without_insert(evidence, inserts)
    verdict.problems += _after_the_end(evidence)
    verdict.problems += _same_keys(history)
    verdict.problems += _batches_wrong(evidence)
    stays = list(_stays(evidence))
    verdict.limited.update(class_of(stay.key) for stay in stays)
    verdict.problems += broken(stays, evidence.limits, skew=evidence.skew + evidence.noted_late)
    of_action = [replace(stay, key=f"{name}:") for name in evidence.rates for stay in _stays(evidence, all_tasks=True)]
    skew = evidence.skew + evidence.noted_late + (LATE + EARLY).total_seconds()
    verdict.problems += broken(of_action, evidence.rates, skew=skew)
    verdict.problems += _schedules_wrong(evidence) if evidence.schedules_end else ()
    verdict.problems += [f"the doctor: {finding}" for finding in evidence.findings]
    return verdict


def _without_insert(evidence: Evidence, inserts: Collection[str]) -> Iterator[str]:
    for incarnation in sorted({*evidence.history.runs, *evidence.elsewhere} - {*inserts}):
        yield f"{incarnation}: executed, and no client inserted it"
    for task_id, row in evidence.rows.items():
        if _incarnation_of(row) not in inserts and not is_or_was_schedule(row):
            yield f"{task_id}: a row that no client inserted"


def _schedules_wrong(evidence: Evidence) -> Iterator[str]:
    """A schedule comes to its end, and has missed no run. Its runs are judged as tasks."""
    for task_id, row in evidence.rows.items():
        if is_or_was_schedule(row) and row.get("outcome") != "completed":
            yield f"{task_id}: a schedule that is {row.get('scheduleState')}: {row.get('error', 'not at its end')}"
        elif is_or_was_schedule(row) and row.get("missedOccurrences"):
            yield f"{task_id}: a schedule that missed {row['missedOccurrences']} runs"


# -- batches -----------------------------------------------------------------------------------------------------------


def _batches_wrong(evidence: Evidence) -> Iterator[str]:
    """A batch that was taken is there and ends; its counts add up, and its task follows unless it was cancelled. Its
    members, and what follows, are judged as tasks besides."""
    inserts = evidence.history.incarnations.items()
    taken = {i.rpartition("/")[0] for i, one in inserts if one.request.interface == BATCH and one.status == OK}
    for batch_id in sorted(taken - {*evidence.batches}):
        yield f"{batch_id}: a batch without a row"
    for batch_id, row in evidence.batches.items():
        batch, follows = Batch.of(row), then_id(batch_id)
        if batch is None or row.get("outcome") not in ("completed", "cancelled"):
            yield f"{batch_id}: a batch that is {row.get('status')}: not at its end"
        elif row["outcome"] == "cancelled":
            if follows in evidence.rows or follows in evidence.history.runs:
                yield f"{batch_id}: cancelled, and its task followed"
        else:
            yield from _counts_wrong(batch_id, batch, row, evidence)
            if batch.then is not None and follows not in evidence.rows:
                yield f"{batch_id}: completed, and no task followed"
        if len(evidence.history.runs.get(follows, {})) > 1:
            yield f"{batch_id}: its task followed more than once"
        yield from _begun_after_cancellation(batch_id, evidence)


def _counts_wrong(batch_id: str, batch: Batch, row: Row, evidence: Evidence) -> Iterator[str]:
    """What its row counts at its end. A member that was changed after that may have ended otherwise."""
    result = row.get("result")
    counts = (
        {name: int(str(n)) for name, n in result.items() if name != "members"} if isinstance(result, Mapping) else {}
    )
    if sum(counts.values()) != batch.members:
        yield f"{batch_id}: a batch of {batch.members} members whose counts are {counts}"
    members = [evidence.rows.get(member_id(batch_id, n), {}) for n in range(batch.members or 0)]
    stayed = [one for one in members if not _ran_again_after(one, row, evidence.skew)]
    found = Counter(str(one.get("outcome")) for one in stayed)
    if found - Counter(counts) and "deleted" not in counts:
        yield f"{batch_id}: its row counts {counts}, and its members {dict(found)}"


def _ran_again_after(member: Row, batch: Row, skew: float) -> bool:
    """Whether a later run of a member may have ended after its batch did."""
    finished, batch_finished = member.get("finishedAt"), batch.get("finishedAt")
    if member.get("run", 1) == 1 or finished is None or batch_finished is None:
        return False
    ahead = parse_instant(finished, "finishedAt") - parse_instant(batch_finished, "finishedAt")
    return ahead.total_seconds() > -skew


def _begun_after_cancellation(batch_id: str, evidence: Evidence) -> Iterator[str]:
    """Members that began, for the first time, when no process could have missed the cancellation of their batch. A
    later run of one is a client's wish."""
    history = evidence.history
    cancelled = [
        one.response.at
        for one in history.of_task.get(batch_id, ())
        if one.request.operation == CANCEL and one.status == OK and one.response is not None
    ]
    if not cancelled:
        return
    for incarnation, runs in history.runs.items():
        if incarnation.rpartition("/")[0] == batch_id and incarnation != then_id(batch_id):
            first = min((attempt.began.at for attempt in runs.get(1, ())), default=cancelled[0])
            if first > cancelled[0] + evidence.timeout + _SKEW:
                yield f"{incarnation}: executed long after its batch was cancelled"


# -- how a task ended --------------------------------------------------------------------------------------------------


def _result(incarnation: str, insert: Operation, evidence: Evidence) -> tuple[str, str | None]:
    """Returns one of RESULTS, and what is wrong. A task whose insert has an unknown outcome need not be there."""
    if insert.status == REFUSED:
        return "not there", None
    row = evidence.rows.get(insert.request.task_id)
    runs: Mapping[int, Sequence[Attempt]] = evidence.history.runs.get(incarnation, {})
    done = {run for run, attempts in runs.items() if any(attempt.done for attempt in attempts)}
    if incarnation in evidence.elsewhere:
        done.add(_run_of(row or {}))
    if row is not None and _incarnation_of(row) == incarnation:
        return _result_of_row(insert, row, done, evidence)
    taken_out = _taken_out(insert, evidence.history)
    if taken_out is None and insert.status == OK:
        return "lost", "lost; there is no row, and no client took it out"
    return ("executed" if done else taken_out or "not there"), None


def _result_of_row(insert: Operation, row: Row, done: set[int], evidence: Evidence) -> tuple[str, str | None]:
    run, fails = _run_of(row), insert.request.fails
    match row.get("outcome"):
        case None:
            bucket = Bucket.canonical(row.get("taskDateTime"))
            if bucket is None or bucket.minute <= evidence.drained.get(bucket.shard, bucket.minute):
                return "lost", f"lost; it is open in {bucket}, where no tick polls any more"
            return "waiting", f"still {row.get('status', 'unscheduled')} in {bucket}"
        case "completed":
            if run not in done:
                return "lost", f"lost; run {run} is recorded as completed, and was never executed"
            return "executed", "completed, although it must fail" if fails else None
        case "failed":
            if (insert.request.task_id, str(row.get("createdAt")), run) not in evidence.dead_letters:
                return "failed", "failed without a dead letter"
            can_fail = fails or _used_up(row)
            return "failed", None if can_fail else f"failed, although it can't: {row.get('error')}"
        case "cancelled":
            attempts = evidence.history.attempts(insert.request.incarnation, run)
            unexplained = any(attempt.done and attempt.cut_off is None for attempt in attempts)
            executed = unexplained or insert.request.incarnation in evidence.elsewhere
            return "cancelled", f"cancelled, and run {run} was executed" if executed else None
        case other:
            return "lost", f"an outcome that is none: {other!r}"


def _taken_out(insert: Operation, history: History) -> str | None:
    """Returns whether a client has, or may have, deleted or replaced it."""
    for other in history.of_task[insert.request.task_id]:
        same, later = other.request.incarnation == insert.request.incarnation, other.request.at >= insert.request.at
        is_its_end = {DELETE: same, REPLACE: not same and later}.get(other.request.operation, False)
        if is_its_end and other.status != REFUSED:
            return TAKEN_OUT[other.request.operation]
    return None


def _used_up(row: Row) -> bool:
    """Returns whether the end of a process cut off each attempt that its policy allows."""
    maximum = RetryPolicy.from_row(row.get("retryPolicy")).maximum_attempts
    return str(row.get("error", "")).startswith(_USED_UP) and int(str(row.get("attempt", 0))) >= maximum


def _incarnation_of(row: Row) -> str:
    payload = row.get("payload")
    return str(payload.get("incarnation", row["taskId"]) if isinstance(payload, Mapping) else row["taskId"])


def _run_of(row: Row) -> int:
    return int(str(row.get("run", 1)))


# -- what the attempts of a run must be --------------------------------------------------------------------------------


def _count(attempts: Sequence[Attempt], verdict: Verdict) -> None:
    finished = [attempt for attempt in attempts if attempt.done]
    if len(finished) > 1:
        reasons = {attempt.cut_off or "for no reason" for attempt in finished[:-1]}
        verdict.repeated[" and ".join(sorted(reasons))] += 1
    verdict.reclaimed += sum(before.ended is None or before.done for before, _ in pairwise(attempts))


def _wrong(insert: Operation, attempts: Sequence[Attempt], evidence: Evidence) -> Iterator[str]:
    restored = insert.request.incarnation in evidence.restored
    for before, after in () if restored else pairwise(attempts):
        number = before.began.attempt
        if after.began.attempt <= number:
            yield f"attempt {after.began.attempt} was made after attempt {number}"
        if before.ended_position is not None and before.ended_position > after.position:
            yield f"attempt {after.began.attempt} began while attempt {number} was at work"
        if before.done and before.recorded:
            yield f"executed again, although attempt {number} is recorded as done"
        elif before.done and before.cut_off is None:
            yield f"executed again, and nothing came between attempt {number} and its record"
        elif before.ended is None and not before.died:
            yield f"executed again, while the process of attempt {number} lived"
    if len(keys := {attempt.began.key for attempt in attempts}) > 1:
        yield f"executed with different idempotency keys: {', '.join(sorted(keys))}"
    if insert.status == REFUSED:
        yield "executed, although its insert was refused"


def _early(insert: Operation, run: int, attempts: Sequence[Attempt], evidence: Evidence) -> Iterator[str]:
    """Yields attempts that began too early by their process's clock. A client that changes the time ends a backoff."""
    changes = [
        other
        for other in evidence.history.of_task[insert.request.task_id]
        if other.request.operation in (RESCHEDULE, RUN)
        and other.request.incarnation == insert.request.incarnation
        and other.status != REFUSED
    ]
    limits = [(attempt, attempt.began.due_at, "it was due") for attempt in attempts]
    if not changes:
        limits += [(after, before.not_before or 0, "its backoff was over") for before, after in pairwise(attempts)]
    elif (response := changes[-1].response) is not None and (response.run or run) == run:
        due_at, position = response.due_at or 0, changes[-1].position or 0
        limits += [(one, due_at, "the time that it was given") for one in attempts if one.position > position]
    for attempt, limit, what in limits:
        if (early := limit - attempt.began.at) > evidence.skew:
            yield f"attempt {attempt.began.attempt} began {early:.3f} s before {what}"


def _same_keys(history: History) -> Iterator[str]:
    """Another run, and another task under the same id, have another key."""
    owners: dict[str, tuple[str, int]] = {}
    for owner in ((incarnation, run) for incarnation, runs in history.runs.items() for run in runs):
        for key in {attempt.began.key for attempt in history.attempts(*owner)}:
            if (other := owners.setdefault(key, owner)) != owner:
                yield f"{owner[0]}, run {owner[1]} has the idempotency key {key} of {other[0]}, run {other[1]}"


def _stays(evidence: Evidence, *, all_tasks: bool = False) -> Iterator[Stay]:
    """Of attempts of tasks with limit keys, or of all."""
    for runs in evidence.history.runs.values():
        for attempt in (one for attempts in runs.values() for one in attempts):
            began = attempt.began
            if all_tasks or began.limit_key is not None:
                end = began.until if attempt.ended is None else attempt.ended.at
                yield Stay(task_id=began.task_id, key=str(began.limit_key), begin=began.at, end=end)


# -- what must not happen after an end ---------------------------------------------------------------------------------


def _after_the_end(evidence: Evidence) -> Iterator[str]:
    history = evidence.history
    for operation in history.operations.values():
        request, response, position = operation.request, operation.response, operation.position
        if response is None or response.status != OK or position is None:
            continue
        if request.operation == CANCEL:
            for attempt in history.attempts(request.incarnation, response.run or 1):
                if attempt.position > position:
                    yield f"{request.incarnation}: executed (attempt {attempt.began.attempt}) after it was cancelled"
                elif (attempt.ended_position or 0) > position:  # only what waits can be cancelled
                    yield f"{request.incarnation}: cancelled while attempt {attempt.began.attempt} was at work"
        elif request.operation in TAKEN_OUT:
            for incarnation in _ended_by(operation, history):
                yield from _still_there(incarnation, operation, response.at, evidence)
    for row in evidence.rows.values():
        if row.get("outcome") == "cancelled":
            yield from _after_cancellation(row, history)


def _ended_by(operation: Operation, history: History) -> set[str]:
    """The task that a client deletes, or the tasks under the same id that were there before it replaced them."""
    request = operation.request
    if request.operation == DELETE:
        return {request.incarnation}
    others = (one.request for one in history.of_task[request.task_id] if one is not operation)
    return {one.incarnation for one in others if one.operation in INSERTS and one.at <= request.at}


def _still_there(incarnation: str, operation: Operation, at: float, evidence: Evidence) -> Iterator[str]:
    """A process that had claimed it before may still execute it, but none does once an invocation has timed out."""
    ended = TAKEN_OUT[operation.request.operation]
    if (row := evidence.rows.get(operation.request.task_id)) is not None and _incarnation_of(row) == incarnation:
        yield f"{incarnation}: there again, after it was {ended}"
    for attempts in evidence.history.runs.get(incarnation, {}).values():
        if any(attempt.began.at > at + evidence.timeout + _SKEW for attempt in attempts):
            yield f"{incarnation}: executed long after it was {ended}"


def _after_cancellation(row: Row, history: History) -> Iterator[str]:
    """Yields executions after it was cancelled, by the times of table and journal, also where the response was lost."""
    incarnation = _incarnation_of(row)
    try:
        cancelled = parse_instant(row.get("finishedAt"), "finishedAt").timestamp()
    except InvalidInput:
        yield f"{incarnation}: cancelled, and it is not known when"
        return
    for attempt in history.attempts(incarnation, _run_of(row)):
        if attempt.began.at > cancelled + _SKEW:
            yield f"{incarnation}: executed {attempt.began.at - cancelled:.1f} s after it was cancelled"
