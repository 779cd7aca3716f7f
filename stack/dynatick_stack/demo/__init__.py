"""`make demo`: a mixed batch of tasks through real ticks on a stack of its own, and whether each ended as it must."""
