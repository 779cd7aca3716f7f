"""What a view's declaration makes of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from dynatick.domain.view import Json, View


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part(View):
    made_at: datetime
    color: Color = Color.RED


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole(View):
    first_part: Annotated[Part, Json(inline=True)]
    parts: tuple[Part, ...] = ()
    lateness_p50_ms: int | None = None
    next_start: Annotated[str | None, Json(null=True)] = None
    bucket: Annotated[str, Json(name="taskDateTime"), "described"] = "b"
    counts: Annotated[Mapping[str, int], Json(optional=True)] = field(default_factory=dict)
    secret: Annotated[str, Json(hidden=True)] = "s"

    @property
    def total(self) -> Annotated[int, Json(optional=True)]:
        return sum(self.counts.values())

    @property
    def unseen(self) -> int:
        return 1


PART = Part(made_at=datetime(2026, 12, 31, 12, tzinfo=UTC))
ROW = {"madeAt": "2026-12-31T12:00:00Z", "color": "red"}


def test_none_is_left_out_or_null_and_what_is_optional_if_it_is_empty_but_not_if_it_is_0() -> None:
    assert Whole(first_part=PART).to_row() == {
        **ROW, "total": 0, "parts": [], "nextStart": None, "taskDateTime": "b",
    }  # fmt: skip


def test_views_within_are_shown_in_place_or_under_their_names() -> None:
    assert Whole(first_part=PART, parts=(PART,), lateness_p50_ms=0, next_start="n", counts={"a": 1}).to_row() == {
        **ROW, "total": 1, "parts": [ROW], "latenessP50Ms": 0, "nextStart": "n", "taskDateTime": "b",
        "counts": {"a": 1},
    }  # fmt: skip
