"""``Operations`` for asyncio. Imported when they are needed, as ``Operations`` are."""

from __future__ import annotations

from dynatick.client.async_tasks import Threaded, awaited, iterated
from dynatick.client.operations import Operations


class AsyncOperations(Threaded):
    """``Operations``, awaited."""

    actions = awaited(Operations.actions)
    check_payloads = awaited(Operations.check_payloads)
    doctor = awaited(Operations.doctor)
    explain = awaited(Operations.explain)
    failures = awaited(Operations.failures)
    health = awaited(Operations.health)
    listed_pages = iterated(Operations.listed_pages)
    minute_counts = awaited(Operations.minute_counts)
    pause = awaited(Operations.pause)
    pause_action = awaited(Operations.pause_action)
    resume = awaited(Operations.resume)
    resume_action = awaited(Operations.resume_action)
    status = awaited(Operations.status)
    tick_range = awaited(Operations.tick_range)
    ticks = awaited(Operations.ticks)
    ticks_and_counts = awaited(Operations.ticks_and_counts)
    waiting_by_action = awaited(Operations.waiting_by_action)
