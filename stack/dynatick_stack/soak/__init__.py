"""The soak: inserters and processors for some minutes, killed and cut off at random; then it is counted what became of
every task."""
