"""What the endpoint refuses."""

from __future__ import annotations

from dynatick_stack.counting.rules import Item


class Refused(Exception):
    """A request that is not carried out, with DynamoDB's code for it."""

    def __init__(self, message: str, code: str = "ValidationException", *, item: Item | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.item = item  # the one that was met, when a condition did not hold
        self.units = 0.0  # what it costs all the same


def condition_failed(item: Item | None) -> Refused:
    return Refused("The conditional request failed", "ConditionalCheckFailedException", item=item)
