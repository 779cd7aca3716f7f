"""Which invocation serves which shards of a tick.

A tick begins in one invocation, the root of a tree. A node of it serves one *group* of shards, and starts other nodes
for the rest of its range. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

GROUP = 64  # shards to an invocation, if they are idle
MAX_CHILDREN = 8  # of a node: it starts them all at once


def group_of(shard: int) -> int:
    """The number of the group that a shard belongs to, whatever the number of shards."""
    return shard // GROUP


def groups(shards: range) -> list[range]:
    """Consecutive shards, group by group."""
    edges = [shards.start, *range((group_of(shards.start) + 1) * GROUP, shards.stop, GROUP), shards.stop]
    return [range(start, stop) for start, stop in pairwise(edges)] if shards else []


def split(shards: range) -> tuple[range, list[range]]:
    """The group that a node serves itself, and the ranges for which it starts children."""
    own, *rest = groups(shards) or [shards]
    return own, portions(rest)


def portions(of_groups: Sequence[range]) -> list[range]:
    """Consecutive groups in as many ranges as a node may start, as even as possible."""
    number = min(MAX_CHILDREN, len(of_groups))
    edges = [n * len(of_groups) // number for n in range(number + 1)] if number else []
    return [range(of_groups[start].start, of_groups[stop - 1].stop) for start, stop in pairwise(edges)]
