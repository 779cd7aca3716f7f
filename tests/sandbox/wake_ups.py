"""The queue of wake-ups of a sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime

from tests.sandbox.folder import SharedFolder, append

QUEUE_DOWN = "DYNATICK_SANDBOX_WAKE_UP_QUEUE_DOWN"


class Queue:
    """The queue of wake-ups, as a file from which a world delivers them."""

    def __init__(self, here: SharedFolder, *_: object, **__: object) -> None:
        self._here = here

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        if os.environ.get(QUEUE_DOWN):
            return len(wake_ups)
        append(self._here.wake_ups, [[event, at.timestamp()] for event, at in wake_ups])
        return 0
