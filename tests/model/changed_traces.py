"""Changes one event of each of some traces of the model, and has them replayed by the rules alone: which are refused?

    python -m tests.model.changed_traces             a hundred traces, the same each time
    python -m tests.model.changed_traces --write     into docs/proof.md too

The first trace has a value of an event changed, the second an event dropped, the third an event swapped with the next,
and so on. Which event, and which value, depends on the seed and on the number of the trace alone. The times stay where
they are: that they go on is too easy to check. Exit code 1 if a changed trace is accepted for which HARMLESS has no
reason.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import copy
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from proof.prove import PAGE
from proof.replay import OWN, Event, bucket_name, parse_bucket, refusal_of
from tests.model.traces import MACHINES, traces_of

from dynatick_stack.markdown import table, write_parts

TRACES, SEED = 100, 1
CHANGED, DROPPED, SWAPPED = "changed", "dropped", "swapped"
KINDS = (CHANGED, DROPPED, SWAPPED)

NO_RULE = ("tick", "bucket", "idle", "shown late")
"""Records that no rule concerns, and what only says where the rules promise nothing. None of these is changed."""

HARMLESS: Mapping[str, str] = {
    r".* \(refused\).*": "A write without effect: its conditions did not hold, and do not",
    r"swapped .*": "Neither needs the other: in either order each write gets the same answer and leaves the same rows",
    r"\w+ poll.*": "No claim is from this page, and S passes no bucket for it alone: others make up the whole",
    r"\w+ (ended|died).*": "That a process is gone allows others more, and itself less; what follows needs neither",
    r"dropped process": "It did nothing",
    r"changed process.*": "Its kind, clock, end and order may be these, too: what it did is lawful with them",
    r"\w+ sent.*": "Wake-ups are hints: without them the tick runs the task",
    r"\w+ letters.*": "Who sent it means nothing, or no engine recorded a failure after it",
    r"changed create of cursor: row\.lease(Until)?": "A lease that is over is none",
    r"changed \w+ of cursor: \w+\.checkpoint(At)?": "The checkpoint is still closed, and no earlier than its closing",
    r"changed \w+ of cursor: \w+\.lease(Until)?": "The same lease by another name, or longer: nobody else wanted it",
    r"changed \w+ of cursor: \w+\.\w+": "No rule concerns this attribute: C, S, lease and plan are as they were",
    r"\w+ \w+ of (settings|limits).*": "No rule concerns it: the number of shards and the lease are as they were",
    r"\w+ \w+ of change.*": "The record of a change of many tasks: nothing is decided by it",
    r"changed create: by": "Anyone may insert a task, this process as well as that",
    r"\w+ create of pack.*": "No rule concerns the row of the payloads, and what is read from it is no event",
    r"\w+ scan.*": "It is the doctor's, or of a reconcile that died or raised",
    r"changed (create|put): row\..*": "It is another task, and its life is as lawful",
    r"\w+ delete.*": "A deletion by hand, or of nothing: without it the task ended by itself",
    r"dropped (write|put|create)( of cursor)?": "The last write of its row, or before that was deleted or replaced",
    r"\w+ (begin|end).*": "The execution came to nothing: its process died, or only its failure was recorded",
    r"dropped record": "The stream shows the row as it was put anew in the same instant, or need not show it",
    r"\w+ restore.*": "Nothing was missing after the restore that the rules would not allow without it",
}
"""Why a changed trace may be accepted, by a pattern of what was done: the first that fits."""


@dataclass(frozen=True)
class ChangedTrace:
    """``what``: the event, and which value of it; ``at``: the line of the event, from 1 on."""

    events: Sequence[Event]
    kind: str
    what: str
    at: int


def changed_traces(number: int = TRACES, seed: int = SEED) -> Iterator[ChangedTrace]:
    """As many of each machine, or one more."""
    n = 0
    for place, machine in enumerate(MACHINES):
        of_machine = number // len(MACHINES) + (place < number % len(MACHINES))
        for events in traces_of(machine, seed, of_machine):
            yield change(events, KINDS[n % len(KINDS)], random.Random(f"{seed}-{n}"))
            n += 1


def change(events: Sequence[Event], kind: str, dice: random.Random) -> ChangedTrace:
    """Neither the first event is touched, which says what may be, nor the last, which says that all is over."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for n in range(1, len(events) - 1):
        if _is_bound(events[n]) and (kind != SWAPPED or _next_related(events, n) is not None):
            by_name[name_of(events[n])].append(n)
    what = dice.choice([*by_name])  # first: most events are polls of empty buckets
    at = dice.choice(by_name[what])
    changed, event = list(events), events[at]
    if kind == DROPPED:
        del changed[at]
    elif kind == SWAPPED:
        second = _next_related(events, at)
        assert second is not None
        following = events[second]
        changed[at], changed[second] = {**following, "at": event["at"]}, {**event, "at": following["at"]}
        what = f"{what}, {name_of(following)}"
    else:
        changed[at] = new = copy.deepcopy(dict(event))
        path = dice.choice([path for path in leaves(new) if path[0] not in ("e", "at")])
        place: Any = new
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = other(place[path[-1]])
        what = f"{what}: {'.'.join(str(step) for step in path if not isinstance(step, int))}"
    return ChangedTrace(changed, kind, what, at + 1)


def _next_related(events: Sequence[Event], at: int) -> int | None:
    """The next event of the same process, or about the same row: the order of others often means nothing."""
    event = events[at]
    for n in range(at + 1, len(events) - 1):
        if _is_bound(events[n]) and any(name in event and event[name] == events[n].get(name) for name in ("by", "id")):
            return n
    return None


def _is_bound(event: Event) -> bool:
    return not any(name in name_of(event) for name in NO_RULE)


def name_of(event: Event) -> str:
    """Its kind, and the kind of the row that it is about."""
    row = str(event.get("id", ""))
    name = f"{event['e']} of {row.split('#')[1]}" if row.startswith(OWN) else str(event["e"])
    return name if event.get("ok", True) else f"{name} (refused)"


def leaves(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from leaves(one, (*path, name))
    elif isinstance(value, list):
        for n, one in enumerate(value):
            yield from leaves(one, (*path, n))
    else:
        yield path


def other(value: object) -> object:
    """A value near this one: of another minute, one more, or of another name."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if not isinstance(value, str):
        return "x"
    if (bucket := parse_bucket(value)) is not None:
        return bucket_name(bucket[0] + 1, bucket[1])
    try:
        instant = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return f"{value}x"
    return (instant + timedelta(minutes=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Judged:
    """``accepted``: by why that is harmless (None: nobody knows), what was done in each."""

    refused: Counter[str] = field(default_factory=Counter)  # by kind
    rules: Counter[str] = field(default_factory=Counter)  # that refused them
    accepted: dict[str | None, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def number(self) -> int:
        return self.refused.total() + sum(map(len, self.accepted.values()))


def judge(traces: Iterable[ChangedTrace]) -> Judged:
    judged = Judged()
    for one in traces:
        refused = refusal_of(one.events)
        if refused is None:
            what = f"{one.kind} {one.what}"
            judged.accepted[next((HARMLESS[p] for p in HARMLESS if re.fullmatch(p, what)), None)].append(what)
        else:
            judged.refused[one.kind] += 1
            judged.rules[refused.rule] += 1
    return judged


def lines(judged: Judged, seed: int) -> Iterator[str]:
    """What it prints and writes, as Markdown."""
    kinds = ", ".join(f"{judged.refused[kind]} {kind}" for kind in KINDS)
    numbered = sorted(((rule, n) for rule, n in judged.rules.items() if rule.isdigit()), key=lambda item: int(item[0]))
    by_rule = ", ".join(f"{rule}: {n}" for rule, n in numbered)
    yield (
        f"Seed {seed}:\n{judged.refused.total()} of {judged.number} traces are refused ({kinds}).\nBy rule {by_rule}; "
        f"{judged.rules['table']} as the table, or a process, can't have done that; {judged.rules['end']} for how a "
        f"task ended."
    )
    yield ""
    rows = [
        [str(len(given)), "; ".join(sorted({*given})), why or "NO REASON"]
        for why, given in sorted(judged.accepted.items(), key=lambda item: -len(item[1]))
    ]
    yield table(("Accepted", "What was done", "Why it is harmless"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=TRACES, metavar="N", help=f"how many ({TRACES})")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--write", action="store_true", help="write the figures into docs/proof.md")
    given = parser.parse_args(arguments)
    judged = judge(changed_traces(given.traces, given.seed))
    text = "\n".join(lines(judged, given.seed))
    print(text)
    if given.write:
        of = f"Of {datetime.now(UTC):%Y-%m-%d}, by `make traces CHANGED=1 WRITE=1`."
        write_parts(PAGE, {"changed-traces": f"{of} {text}"})
    return 1 if None in judged.accepted else 0


if __name__ == "__main__":
    sys.exit(main())
