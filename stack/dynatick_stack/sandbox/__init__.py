"""The functions in processes that can be killed, with faults on their way to AWS: for the fault tests and the soak."""
