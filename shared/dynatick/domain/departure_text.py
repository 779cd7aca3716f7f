"""The text for each way in which tasks leave a bucket."""

from typing import Final

from dynatick.domain import attributes as attr

DEPARTURE_TEXT: Final = {
    attr.RETRIED: "to be retried",
    attr.RESCHEDULED: "for a further turn",
    attr.DEFERRED: "failed, and waiting for the dead-letter queue",
    attr.REDRIVEN_FAILED: "redriven after they had failed",
    attr.REDRIVEN_COMPLETED: "run again after they had completed",
    attr.REDRIVEN_CANCELLED: "restored or run after they were cancelled",
    attr.MOVED: "moved before they ran",
}
