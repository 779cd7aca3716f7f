"""A trace with one event changed, dropped or swapped is refused, or there is a reason why that does no harm.

A fixed sample; a hundred: ``make traces CHANGED=1``.
"""

from __future__ import annotations

from tests.model.changed_traces import KINDS, changed_traces, judge

SAMPLE = 15


def test_a_changed_trace_is_refused_or_known_to_be_harmless() -> None:
    judged = judge(changed_traces(SAMPLE))
    assert judged.number == SAMPLE
    assert None not in judged.accepted, judged.accepted[None]
    assert all(judged.refused[kind] for kind in KINDS)
    assert 3 * judged.refused.total() > SAMPLE
