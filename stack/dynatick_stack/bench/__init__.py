"""Benchmarks: what a task costs in capacity units, calls and CPU time, and how late it begins."""
