"""What the members of a batch cost, from their insert to their outcome."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.counting.counts import Engine

MEMBERS = 2_000
MAX_WRITE_UNITS = 0.05
MAX_READ_UNITS = 0.1


def mail(n: int) -> dict[str, object]:
    """About 200 bytes as JSON, of which an address and a code of 32 digits can't be compressed away."""
    code = sha256(str(n).encode()).hexdigest()[:32]
    text = "Your contract ends in four weeks. Renew it on the page that this link leads to."
    return {"to": f"{code[:8]}@example.com", "subject": "Your contract", "text": text, "code": code}


def test_a_member_costs_a_small_part_of_a_task(engine: Engine) -> None:
    installation = Installation.fresh(engine.url)
    installation.next_tick()
    meter = Meter(engine)
    now = installation.clock()
    installation.client.batches.insert(
        map(mail, range(MEMBERS)), batch_id="news", action="nothing", due_at=now + timedelta(seconds=30)
    )
    inserted = meter.read().total
    installation.next_tick()
    ran = meter.read().total
    assert installation.client.batches.get("news").counts == {"completed": MEMBERS}
    assert (inserted.write_units + ran.write_units) / MEMBERS <= MAX_WRITE_UNITS
    assert (inserted.read_units + ran.read_units) / MEMBERS <= MAX_READ_UNITS
