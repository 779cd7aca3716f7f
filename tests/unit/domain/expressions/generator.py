"""Random cron expressions that EventBridge Scheduler accepts, with many unusual ones."""

from __future__ import annotations

from random import Random

from tests.unit.brute_force import MONTHS, WEEKDAYS

Names = tuple[str, ...] | None

YEARS = (1970, 1971, 1999, 2000, 2011, 2024, 2025, 2026, 2027, 2028, 2099, 2100, 2104, 2198, 2199)


def cron(rng: Random) -> str:
    """``cron(…)`` with six fields; some have no occurrence."""
    minutes = _field(rng, 0, 59, 59)
    hours = _field(rng, 0, 23, 23)
    month = _field(rng, 1, 12, 12, MONTHS, plain=0.5)
    by_date = rng.random() < 0.55
    days = f"{_day_of_month(rng)} {month} ?" if by_date else f"? {month} {_day_of_week(rng)}"
    return f"cron({minutes} {hours} {days} {_year(rng)})"


def nightly(rng: Random) -> str:
    """Draws an expression with occurrences on most days, at hours with clock changes."""
    hours = rng.choice(("*", "0/2", "1/3", "23-3", "22-1", "0,1,2,3", "0", "1", "2", "3", "23", "1-2", "2-3"))
    days = rng.choice(
        ("* * ?", "1-31/2 * ?", "? * *", "? * SUN", "? * SAT-SUN", "? * 1#1", "? * 1L", "? * 1#2", "4-8 * ?")
    )
    return f"cron({_field(rng, 0, 59, 59)} {hours} {days} *)"


def _day_of_month(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.12:
        return "L"
    if kind < 0.24:
        return "LW"
    if kind < 0.45:
        return f"{rng.choice((1, 2, 3, 14, 15, 16, 28, 29, 30, 31, rng.randint(1, 31)))}W"
    if kind < 0.6:
        return str(rng.choice((1, 28, 29, 30, 31)))
    return _field(rng, 1, 31, 31)


def _day_of_week(rng: Random) -> str:
    kind = rng.random()
    day = str(rng.randint(1, 7)) if rng.random() < 0.5 else rng.choice(WEEKDAYS)
    if kind < 0.05:
        return "L"
    if kind < 0.25:
        return f"{day}L"
    if kind < 0.5:
        return f"{day}#{rng.randint(1, 5)}"
    return _field(rng, 1, 7, 7, WEEKDAYS)


def _year(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.6:
        return "*"
    if kind < 0.7:
        return str(rng.choice(YEARS))
    if kind < 0.8:
        return f"{rng.choice((1970, 2024, 2026))}/{rng.choice((1, 2, 3, 4, 7, 100, 229))}"
    low, high = sorted((rng.choice(YEARS), rng.choice(YEARS)))
    if kind < 0.9:
        return f"{low}-{high}"
    return f"{low},{high}" if rng.random() < 0.5 else f"{low}-{high}/{rng.randint(1, 9)}"


def _field(rng: Random, first: int, last: int, step: int, names: Names = None, plain: float = 0.2) -> str:
    if rng.random() < plain:
        return "*"
    parts = [_part(rng, first, last, step, names) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return ",".join(parts)


def _part(rng: Random, first: int, last: int, step: int, names: Names) -> str:
    def one() -> str:
        value = rng.choice((first, last, rng.randint(first, last), rng.randint(first, last)))
        return names[value - first] if names and rng.random() < 0.5 else str(value)

    kind = rng.random()
    if kind < 0.45:
        return one()
    if kind < 0.65:
        return f"{one()}-{one()}"
    every = rng.choice((1, 2, 3, 5, 7, step, rng.randint(1, step)))
    every = min(every, step)
    if kind < 0.8:
        return f"{one()}/{every}"
    return f"*/{every}" if kind < 0.9 else f"{one()}-{one()}/{every}"
