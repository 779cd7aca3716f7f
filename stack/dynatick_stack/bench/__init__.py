"""`make bench`: what a task costs in time and capacity units, beside what others do, on any DynamoDB endpoint."""
