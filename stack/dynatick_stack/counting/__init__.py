"""A DynamoDB endpoint that counts: calls, statements and capacity units, by DynamoDB's published rules.

For benchmarks and for tests of what a task costs. It keeps tables in memory, in a process of its own, and knows the
calls that Dynatick makes. Not a local DynamoDB: whatever it does not know, it refuses.
"""
