"""Sequences that did harm once: each shows a fault of the product, which has been repaired since.

As ``python -m tests.model.search`` printed them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.model.rows import RawRow, When
from tests.model.seam import Plan
from tests.model.steps import Found, Step

KEPT: Mapping[str, Found] = {
    "a row with an attempt by hand is rescheduled before anybody saw it": Found(
        "300.365: b: failed at attempt 1, and its action None: action: None is not accepted; "
        "expected the name of an action as text, such as log or webhook",
        [
            Step("put", policy=None, row=RawRow(attempt=0, action=False), script=("ok",), task_id="b"),
            Step("reschedule", client=0, plan=Plan(), task_id="b", when=When()),
        ],
    ),
    "a late record strips the row that was put in its place": Found(
        "0.120: a: completed with outcome None, expiresAt None",
        [
            Step("put", policy=None, row=RawRow(status="running", stray=True), script=("ok",), task_id="a"),
            Step("put", policy=None, row=RawRow(status="completed", stray=True), script=("ok",), task_id="a"),
        ],
    ),
}
