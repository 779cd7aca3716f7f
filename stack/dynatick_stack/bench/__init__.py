"""Benchmarks: what a task costs in capacity units, calls and CPU time, how that grows, and how late it begins."""
