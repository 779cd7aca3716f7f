"""`make demo`: a mixed batch of tasks through real ticks on a stack of its own, and a verdict on what became of it."""
