"""What can go wrong with the local stack, each with the exit code that the commands end with.

StackError            1  something failed; the message says what
├── BuildError        1
├── DeployError       1
├── NotRunningError   3  there is no local stack to talk to
└── PortBusyError     4  another program has the port
"""


class StackError(Exception):
    exit_code = 1


class BuildError(StackError):
    pass


class DeployError(StackError):
    pass


class NotRunningError(StackError):
    exit_code = 3


class PortBusyError(StackError):
    exit_code = 4
