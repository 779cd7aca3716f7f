"""The order of a worker: a range of ids that a pass hands out (protocol 17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.engine.ports import ENVELOPE
from dynatick.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkOrder:
    """A worker as data: claim the ids of a bucket in (after, through], until an instant.

    ``after`` None: from the first id on. Until then the shard's holder leaves the range alone; the cursor row lists it.
    """

    bucket: Bucket
    after: str | None
    through: str
    until: datetime

    def to_map(self) -> dict[str, object]:
        return {
            "bucket": str(self.bucket),
            "after": self.after,
            "through": self.through,
            "until": format_instant(self.until),
        }

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"work": self.to_map()}}

    @classmethod
    def from_map(cls, inner: object, field: str) -> WorkOrder:
        """Raises InvalidInput, which names ``field``."""
        if not isinstance(inner, Mapping):
            raise InvalidInput(field, inner, "expected a map of bucket, after, through and until")
        after, through = inner.get("after"), inner.get("through")
        if after is not None and not isinstance(after, str):
            raise InvalidInput(f"{field}.after", after, "expected an id, or null")
        if not isinstance(through, str) or not through:
            raise InvalidInput(f"{field}.through", through, "expected an id")
        return cls(
            bucket=Bucket.parse(inner.get("bucket"), f"{field}.bucket"),
            after=after,
            through=through,
            until=parse_instant(inner.get("until"), f"{field}.until"),
        )
